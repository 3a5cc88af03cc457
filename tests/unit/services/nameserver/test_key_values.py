"""What a nameserver keeps by namespace and key, and what it refuses to keep."""

import asyncio
import random

import pytest

from dittomq.errors import DiskFull, InvalidField, KeyNotFound, LimitReached, StorageFailure, VersionConflict
from dittomq.routes import ORDER_TOPIC_CONFIG, KeyValue
from services.nameserver import key_values as module
from services.nameserver.key_values import KeyValues
from services.nameserver.key_values_file import load
from services.nameserver.state_folder import locked
from tests.support.failing_storage import CrashingStorage
from tests.support.inline_lane import InlineLane
from tests.support.naming import kept_values
from tests.support.stores import Machine


def value(text: str = "v", key: str = "k", namespace: str = "n") -> KeyValue:
    return KeyValue(namespace, key, text)


def on_disk() -> tuple[Machine, CrashingStorage, KeyValues]:
    machine = Machine(random.Random(1))
    with locked(storage := CrashingStorage(machine.storage()), "/data"):
        return machine, storage, KeyValues(load(storage, "/data"), storage, InlineLane())


def test_a_value_that_was_put_is_read_by_the_next_process() -> None:
    machine, _, values = on_disk()

    assert asyncio.run(values.put(value("one")))
    machine.disk.lose_power()

    assert load(machine.storage(), "/data") == {"n": {"k": "one"}}


def test_putting_the_same_value_again_changes_nothing() -> None:
    _, storage, values = on_disk()
    asyncio.run(values.put(value()))
    before = storage.calls

    assert not asyncio.run(values.put(value()))
    assert storage.calls == before


def test_a_deleted_value_is_gone_and_deleting_it_again_says_so() -> None:
    values = kept_values({"n": {"k": "v"}})

    assert asyncio.run(values.delete("n", "k"))
    assert not asyncio.run(values.delete("n", "k"))

    with pytest.raises(KeyNotFound, match='namespace "n" has no key "k"'):
        values.get("n", "k")


def test_a_namespace_is_the_same_object_until_one_of_its_values_changes() -> None:
    values = kept_values({"n": {"k": "v"}, "other": {"k": "v"}})
    before = values.namespace("n")

    asyncio.run(values.put(value(namespace="other", text="new")))
    assert values.namespace("n") is before

    asyncio.run(values.put(value("new")))
    assert values.namespace("n") is not before


def test_pages_of_a_namespace_follow_one_another_in_the_order_of_keys() -> None:
    values = kept_values({"n": {f"k{number}": str(number) for number in range(5)}})

    first = values.page("n", 3, "")
    second = values.page("n", 3, first.next_page_token)

    assert [each.key for each in first.key_values + second.key_values] == ["k0", "k1", "k2", "k3", "k4"]
    assert second.next_page_token == ""


def test_a_page_token_outlives_no_change() -> None:
    values = kept_values({"n": {"a": "", "b": ""}})
    token = values.page("n", 1, "").next_page_token
    asyncio.run(values.put(value()))

    with pytest.raises(VersionConflict):
        values.page("n", 1, token)


@pytest.mark.parametrize("token", ["x", "1", "1:", ":1", "1:1:1", "-1:1", "9" * 21 + ":1"])
def test_an_invented_page_token_of_values_is_refused(token: str) -> None:
    with pytest.raises(InvalidField, match="page_token"):
        kept_values().page("n", 1, token)


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("namespace", value(namespace="")),
        ("namespace", value(namespace="../n")),
        ("namespace", value(namespace="n" * 128)),
        ("key", value(key="")),
        ("key", value(key="k" * 256)),
        ("key", value(key="a\nb")),
        ("value", value("v" * 32_768)),
        ("key", value("a:4", key="no topic", namespace=ORDER_TOPIC_CONFIG)),
        ("value", value("", key="orders", namespace=ORDER_TOPIC_CONFIG)),
        ("value", value("a", key="orders", namespace=ORDER_TOPIC_CONFIG)),
        ("value", value("a:0", key="orders", namespace=ORDER_TOPIC_CONFIG)),
        ("value", value("a:1025", key="orders", namespace=ORDER_TOPIC_CONFIG)),
        ("value", value("a:-1", key="orders", namespace=ORDER_TOPIC_CONFIG)),
        ("value", value("a:1;", key="orders", namespace=ORDER_TOPIC_CONFIG)),
        ("value", value("a:1;a:2", key="orders", namespace=ORDER_TOPIC_CONFIG)),
    ],
)
def test_a_value_beyond_its_limits_is_refused_by_field_and_changes_nothing(field: str, asked: KeyValue) -> None:
    values = kept_values()

    with pytest.raises(InvalidField) as refused:
        asyncio.run(values.put(asked))

    assert (refused.value.field, values.values) == (field, 0)


def test_a_full_table_of_values_takes_changes_and_no_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 1)
    values = kept_values({"n": {"k": "v"}})

    with pytest.raises(LimitReached):
        asyncio.run(values.put(value(key="another")))
    assert asyncio.run(values.put(value("new")))


def test_values_take_no_more_bytes_than_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES_BYTES", 10)
    values = kept_values()

    with pytest.raises(LimitReached):
        asyncio.run(values.put(value("äääää")))
    assert asyncio.run(values.put(value("ääää")))


def test_a_full_disk_refuses_a_value_and_keeps_the_old_one() -> None:
    _, storage, values = on_disk()
    asyncio.run(values.put(value("old")))
    storage.free = 1_000

    with pytest.raises(DiskFull):
        asyncio.run(values.put(value("new")))

    assert values.get("n", "k").value == "old"


def test_a_failed_sync_of_values_ends_the_process_and_is_not_repeated() -> None:
    _, storage, values = on_disk()

    async def story() -> None:
        storage.failing = "fdatasync"
        with pytest.raises(StorageFailure):
            await values.put(value())
        storage.failing = ""
        with pytest.raises(StorageFailure):
            await values.put(value())
        with pytest.raises(StorageFailure):
            await values.watch_disk()

    asyncio.run(story())
    assert values.values == 0


def test_a_caller_that_leaves_does_not_stop_a_change_that_has_begun() -> None:
    _, _, values = on_disk()

    async def story() -> None:
        leaving = asyncio.create_task(values.put(value()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await values.delete("n", "another")  # comes after it

    asyncio.run(story())
    assert values.get("n", "k").value == "v"


def test_more_changes_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 2)
    values = kept_values()

    async def story() -> list[bool | BaseException]:
        return await asyncio.gather(*(values.put(value(key=f"k{number}")) for number in range(3)), return_exceptions=True)

    assert [type(each) for each in asyncio.run(story())] == [bool, bool, LimitReached]
