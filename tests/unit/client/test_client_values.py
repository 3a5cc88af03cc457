"""Tokens, contexts, addresses, waiting bytes, queues: the small parts of the client."""

import asyncio
import os
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.client.access import to_context
from dittomq.client.async_client import AsyncClient, nameservers_of
from dittomq.client.buffer_pool import BufferPool
from dittomq.client.context import Context, contexts_file, current_context, load_contexts, save_context, use_context
from dittomq.client.partitioner import Partitioner
from dittomq.client.producer import ProducerOptions
from dittomq.client.validation import checked_size
from dittomq.errors import ConfigError, InvalidField, MessageTooLarge, PermissionDenied, QueueNotFound
from dittomq.message import Message
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import QueueRange, Route
from dittomq.security.certificate_files import CertificateFiles
from dittomq.tokens import ConsistencyToken, decode_token, encode_token
from tests.support.fake_broker import node_of
from tests.support.virtual_time import under


@pytest.mark.tier("test")
@given(
    broker=st.text(min_size=1, max_size=60),
    epoch=st.integers(0, 2**63 - 1),
    end=st.integers(0, 2**63 - 1),
    incarnation=st.none() | st.integers(0, 2**64 - 1),
    size=st.none() | st.integers(0, 2**63 - 1),
)
def test_a_token_comes_back_as_it_was(broker: str, epoch: int, end: int, *, incarnation: int | None, size: int | None) -> None:
    token = ConsistencyToken(broker, Epoch(epoch), PhysicalOffset(end), incarnation, size)

    assert decode_token(encode_token(*token[:4], size=size)) == token


def test_a_token_of_a_broker_that_names_no_incarnation_is_read() -> None:
    assert decode_token("3.1100.a") == ConsistencyToken("a", Epoch(3), PhysicalOffset(1_100))


@pytest.mark.parametrize(
    "text",
    [
        "i0.1.2.a",
        "i00000000000000zz.1.2.a",
        "i0000000000000001.1.2.",
        "i0000000000000001.1.a",
        "",
        "1",
        "1.2",
        "1.2.",
        "-1.2.a",
        "1.x.a",
        "1.²3.a",
        f"1.{2**63}.a",
        "1.2." + "a" * 300,
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        decode_token(text)


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DITTOMQ_CONFIG", str(tmp_path / "deep" / "contexts.toml"))
    return contexts_file()


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
        )
    )
)
def test_contexts_come_back_as_they_were_saved(entries: list[tuple[str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setenv("DITTOMQ_CONFIG", f"{folder}/contexts.toml")
        for name, nameserver in entries:
            save_context(name, nameserver)

        assert {one.name: one.nameserver for one in load_contexts().all} == dict(entries)


def test_context_keeps_the_files_of_its_certificates(contexts: Path) -> None:
    save_context("plain", "mq:9876")
    save_context("prod", "mq:9876", CertificateFiles("/a/ca.crt", "/a/me.crt", "/a/me.key"))
    save_context("trusting", "mq:9876", CertificateFiles("/a/ca.crt"))

    found = {one.name: (one.tls.ca, one.tls.certificate, one.tls.key) for one in load_contexts().all}

    assert found == {"plain": ("", "", ""), "prod": ("/a/ca.crt", "/a/me.crt", "/a/me.key"), "trusting": ("/a/ca.crt", "", "")}


def test_variables_with_certificates_go_before_those_of_a_context() -> None:
    context = Context("prod", "mq:9876", CertificateFiles("/a/ca.crt"))

    assert to_context(context, {}).tls.ca == "/a/ca.crt"
    assert to_context(context, {"DITTOMQ_CA_FILE": "/b/ca.crt"}).tls.ca == "/b/ca.crt"


def test_a_context_is_current_once_it_was_chosen(contexts: Path) -> None:
    assert current_context() is None
    save_context("local", "localhost:9876")
    assert current_context() is None
    use_context("local")
    save_context("prod", "mq:9876")

    current = current_context()
    assert current is not None
    assert current.nameserver == "localhost:9876"
    with pytest.raises(ConfigError, match='did you mean "local"'):
        use_context("locl")


@pytest.mark.parametrize(
    "text",
    [
        "current = 3",
        "[contexts]\na = 1",
        "other = 1",
        "not toml",
        "contexts = 1",
        "[contexts]\na = { ca_file = 'x' }",
        "[contexts]\na = { nameserver = 'x:1', more = 'y' }",
    ],
)
def test_a_contexts_file_that_is_not_ours_is_named_and_kept(contexts: Path, text: str) -> None:
    contexts.parent.mkdir()
    contexts.write_text(text)

    with pytest.raises(ConfigError, match=r"contexts\.toml"):
        save_context("local", "localhost:9876")
    assert contexts.read_text() == text


def test_contexts_take_the_place_of_a_file_and_of_nothing_else(contexts: Path) -> None:
    contexts.parent.mkdir()
    kept = contexts.with_name("kept.toml")
    contexts.symlink_to(kept)
    save_context("local", "localhost:9876")
    assert contexts.is_symlink()
    assert "localhost:9876" in kept.read_text()
    contexts.unlink()
    os.mkfifo(contexts)
    nothing = threading.Thread(target=lambda: contexts.open("w").close(), daemon=True)  # what a device without end would give to read
    nothing.start()

    with pytest.raises(ConfigError, match="is no file"):
        save_context("local", "localhost:9876")
    assert contexts.is_fifo()


@pytest.mark.parametrize(("name", "nameserver"), [("half \udcff", "a:1"), ("a", "half \udcff:1")])
def test_a_context_that_no_file_can_hold_is_refused_and_leaves_nothing_behind(contexts: Path, name: str, nameserver: str) -> None:
    with pytest.raises(ConfigError):
        save_context(name, nameserver)

    assert not contexts.parent.exists()


def test_a_client_from_no_context_says_what_to_do(contexts: Path) -> None:
    with pytest.raises(ConfigError, match="dittomq context use"):
        AsyncClient.from_context()


def test_properties_near_the_limit_are_measured_in_bytes() -> None:
    wide = "\N{GRINNING FACE}" * 4_000

    assert checked_size(Message("t", b"", properties={"a": "x" * 32_000})) > 32_000
    for over in ({"a": wide, "b": wide, "c": "x" * 600}, {"a": "x" * 32_600}):
        with pytest.raises(MessageTooLarge):
            checked_size(Message("t", b"", properties=over))
    for broken in (Message("t", b"", keys=("a\x01",)), Message("t", b"", tag="\x02"), Message("t", b"", keys="one")):  # type: ignore[arg-type]
        with pytest.raises(InvalidField):
            checked_size(broken)


def test_nameservers_are_read_from_text_or_list() -> None:
    assert nameservers_of("a:1, b:2") == nameservers_of(["a:1", "b:2"]) == ["a:1", "b:2"]
    words = ("", "localhost", "localhost:", ":9876", "localhost:0", "localhost:65536", "localhost:x")
    for bad in (*words, "http://localhost:9876", "a:1 b:2", "half \udcff:1", "half\udcff:1"):
        with pytest.raises(InvalidField):
            nameservers_of(bad)


@under(asyncio.run)
async def test_who_waits_for_room_gets_it_in_turn_and_a_cancelled_one_leaves_no_hole() -> None:
    waiting = BufferPool(10)
    order: list[int] = []

    async def take(size: int) -> None:
        await waiting.take(size)
        order.append(size)

    await waiting.take(8)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(take(5))
        gone = tasks.create_task(take(9))
        tasks.create_task(take(4))
        tasks.create_task(take(30))
        await asyncio.sleep(0)
        gone.cancel()
        waiting.give(8)
        await asyncio.sleep(0)
        assert order == [5, 4]
        waiting.give(9)
    assert not waiting.has_room(1)
    waiting.give(30)
    assert waiting.has_room(10)
    assert order == [5, 4, 30]


def route(*, masters: str = "ab", permission: int = 6) -> Route:
    nodes = tuple(node_of(group, 0 if group in masters else 1) for group in "ab")
    return Route("t", "test", (QueueRange("b", 2, 2, permission), QueueRange("a", 2, 2, permission)), nodes)


def test_free_messages_take_turns_over_groups_that_have_a_master() -> None:
    chooser = Partitioner(lambda: 0.0)

    both = Counter(chooser.target(route(), Message("t", b""))[:2] for _ in range(40))
    one = Counter(chooser.target(route(masters="b"), Message("t", b"")).broker for _ in range(40))

    assert both == {("a", 0): 10, ("a", 1): 10, ("b", 0): 10, ("b", 1): 10}
    assert one == {"b": 40}


def test_only_unbound_messages_pass_over_a_group_that_did_not_answer() -> None:
    now = 0.0
    chooser = Partitioner(lambda: now)
    keyed = Message("t", b"", order_key="k1")
    bound = chooser.target(route(), keyed)

    for broker in "ab":
        now += 60
        chooser.avoid(broker)
        assert {chooser.target(route(), Message("t", b"")).broker for _ in range(8)} == {"a", "b"} - {broker}
        assert chooser.target(route(), keyed) == bound
        assert chooser.elsewhere(route(), "ab".replace(broker, "")) is None
    chooser.avoid("a")

    assert {chooser.target(route(), Message("t", b"")).broker for _ in range(8)} == {"a", "b"}  # both alike: better than none
    now += 5
    assert {chooser.target(route(), Message("t", b"")).broker for _ in range(8)} == {"a", "b"}


def test_an_order_key_keeps_its_queue_when_a_master_is_gone() -> None:
    chooser = Partitioner(lambda: 0.0)
    messages = [Message("t", b"", order_key=f"k{at}") for at in range(50)]

    assert [chooser.target(route(), one) for one in messages] == [chooser.target(route(masters=""), one) for one in messages]
    assert len({chooser.target(route(), one) for one in messages}) == 4


def test_order_configuration_keeps_order_keys_in_its_queues_whatever_a_route_names() -> None:
    chooser = Partitioner(lambda: 0.0)
    messages = [Message("t", b"", order_key=f"k{at}") for at in range(50)]
    whole, closed = replace(route(), order_config="a:2;b:1"), replace(route(permission=4, masters="a"), order_config="a:2;b:1")

    placed = [chooser.target(whole, one) for one in messages]

    assert {target[:2] for target in placed} == {("a", 0), ("a", 1), ("b", 0)}
    assert [chooser.target(closed, one) for one in messages] == placed


def test_an_order_configuration_that_cannot_be_read_is_none() -> None:
    keyed = Message("t", b"", order_key="k1")

    assert Partitioner(lambda: 0.0).target(replace(route(), order_config="?"), keyed) == Partitioner(lambda: 0.0).target(route(), keyed)


def test_a_group_whose_master_is_away_waits_although_its_route_forbids_writing() -> None:
    chooser = Partitioner(lambda: 0.0)

    assert chooser.target(route(masters="", permission=4), Message("t", b"", queue=1)) == ("a", 1, True)
    keyed = Message("t", b"", order_key="k1")
    assert chooser.target(route(masters="", permission=4), keyed) == chooser.target(route(), keyed)


def test_a_queue_that_does_not_exist_and_a_topic_that_takes_no_writes_are_refused() -> None:
    chooser = Partitioner(lambda: 0.0)

    assert chooser.target(route(), Message("t", b"", queue=1)) == ("a", 1, True)
    with pytest.raises(QueueNotFound):
        chooser.target(route(), Message("t", b"", queue=2))
    with pytest.raises(PermissionDenied):
        chooser.target(route(permission=4), Message("t", b""))
    assert chooser.elsewhere(route(masters="a"), "a") is None
    assert chooser.elsewhere(route(permission=4), "a") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"timeout_s": -1.0},
        {"timeout_s": 1e30},
        {"timeout_s": float("nan")},
        {"retry_s": -5.0},
        {"retry_s": float("nan")},
        {"linger_s": -1.0},
        {"max_waiting_bytes": 0},
        {"ack": "REPLICA_FLUSHD"},
        {"on_weak": "rise"},
        {"on_full": "drop"},
    ],
)
def test_a_producer_that_could_not_publish_is_refused_by_field(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as refused:
        ProducerOptions(**changed)

    assert refused.value.field in changed
