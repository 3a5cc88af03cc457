"""Calls that name a message and no topic: who may not touch the message's topic gets nothing of it and changes nothing."""

import asyncio
import random
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from dittomq._pb.ditto.audit.v1.audit_pb2 import DescribeRequest
from dittomq._pb.ditto.audit.v1.audit_pb2_grpc import AuditServiceStub
from dittomq.client import AsyncClient, CancelOutcome, Message, Receipt
from dittomq.errors import PermissionDenied, Unauthenticated
from dittomq.rpc.channel import Channels, call
from dittomq.security.tokens import new_token
from dittomq.testing import LocalCluster, Shape
from spark.audit.tasks import Credentials, transport_with
from tests.support.waiting import PATIENCE_S, eventually

RULES = """
[[allow]]
who = ["token:boss"]
roles = ["produce", "consume", "admin", "replicate"]
topics = ["*"]
groups = ["*"]

[[allow]]
who = ["token:auditor"]
roles = ["audit"]

[[allow]]
who = ["token:shop"]
roles = ["produce", "consume"]
topics = ["orders"]
groups = ["shops"]
"""
TOPICS = ("orders", "secrets")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sent:
    """What the boss has published to one topic."""

    plain: Receipt
    delayed: Receipt
    half: Receipt


Act = Callable[[AsyncClient], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A master with access rules, and what the boss has sent to it."""

    nameserver: str
    shop_token: str
    sent: dict[str, Sent]
    master: str
    auditors_token: Path

    def shop(self, act: Act[T]) -> T:
        """What the shop gets."""
        return asyncio.run(acted(self.nameserver, self.shop_token, act))


async def acted(nameserver: str, token: str, act: Act[T]) -> T:
    async with AsyncClient(nameserver, token=token) as mq:
        return await act(mq)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    made = [new_token(name, random.Random(name)) for name in ("boss", "shop", "auditor")]
    (boss, _), (shop, _), (auditor, _) = made
    (folder / "auditor.token").write_text(auditor)
    (folder / "access.toml").write_text(RULES)
    (folder / "tokens").write_text("".join(f"{line}\n" for _, line in made))
    (folder / "node.token").write_text(boss)
    settings = {
        "access.file": str(folder / "access.toml"),
        "access.tokens_file": str(folder / "tokens"),
        "access.own_token_file": str(folder / "node.token"),
    }
    shape = Shape(slaves=0, master_settings=settings, usual_ports=False)
    cluster = LocalCluster(folder / "cluster", shape)
    cluster.start()
    try:
        eventually(lambda: answers(f"http://127.0.0.1:{cluster.node('a/0').ports.ops}/readyz"), "the master is ready")
        sent = asyncio.run(acted(cluster.nameserver, boss, send_all))
        yield Guarded(cluster.nameserver, shop, sent, cluster.node("a/0").address, folder / "auditor.token")
    finally:
        cluster.stop(grace_s=0.0)


def answers(url: str) -> bool:
    try:
        return int(urllib.request.urlopen(url, timeout=PATIENCE_S).status) == 200
    except OSError:
        return False


async def send_all(owner: AsyncClient) -> dict[str, Sent]:
    for topic in TOPICS:
        await owner.admin.create_topic(topic, 1)
    return {topic: await send(owner, topic) for topic in TOPICS}


async def send(owner: AsyncClient, topic: str) -> Sent:
    async with owner.producer(timeout_s=PATIENCE_S, on_weak="return") as producer:
        plain = await producer.publish(topic, b"plain", queue=0)
        delayed = await producer.publish_message(Message(topic, b"delayed", 0, delay_ms=3_600_000))
        half = await (await producer.transaction(Message(topic, b"half", 0), "shops")).__aenter__()
    assert half.receipt is not None
    return Sent(plain, delayed, half.receipt)


def test_message_is_shown_only_to_who_may_read_its_topic(guarded: Guarded) -> None:
    own, other = (guarded.sent[topic].plain.token for topic in TOPICS)

    assert guarded.shop(lambda mq: mq.messages.get(own)).message.body == b"plain"
    with pytest.raises(PermissionDenied, match="secrets"):
        guarded.shop(lambda mq: mq.messages.get(other))


def test_message_is_cancelled_only_by_who_may_publish_to_its_topic(guarded: Guarded) -> None:
    own, other = (guarded.sent[topic].delayed.token for topic in TOPICS)

    with pytest.raises(PermissionDenied, match="secrets"):
        guarded.shop(lambda mq: mq.messages.cancel(other))
    assert guarded.shop(lambda mq: mq.messages.cancel(own)) is CancelOutcome.CANCELLED


def test_transaction_is_ended_only_by_who_may_publish_to_its_topic(guarded: Guarded) -> None:
    own, other = (guarded.sent[topic].half.token for topic in TOPICS)

    with pytest.raises(PermissionDenied, match="secrets"):
        guarded.shop(lambda mq: mq.transactions.end(other, commit=True))
    guarded.shop(lambda mq: mq.transactions.end(own, commit=True))


@pytest.mark.parametrize("act", ["cancel", "end"])
def test_refusal_of_another_kind_of_message_does_not_name_its_topic(guarded: Guarded, act: str) -> None:
    """A plain message is neither delayed nor half: who may not touch its topic is not told where it lies."""
    token = guarded.sent["secrets"].plain.token

    acts: dict[str, Act[object]] = {
        "cancel": lambda mq: mq.messages.cancel(token),
        "end": lambda mq: mq.transactions.end(token, commit=False),
    }
    with pytest.raises(PermissionDenied):
        guarded.shop(acts[act])


def test_audit_shows_the_token_of_its_file(guarded: Guarded) -> None:
    async def described(shown: Credentials) -> str:
        with transport_with(shown) as transport:
            async with Channels(transport) as channels:
                stub = channels.stub(AuditServiceStub, guarded.master)
                answer = await call(stub.Describe, DescribeRequest(), who="a/0", deadline_s=PATIENCE_S)
                return str(answer.node)

    with pytest.raises(Unauthenticated):
        asyncio.run(described(Credentials()))
    assert asyncio.run(described(Credentials(token_file=str(guarded.auditors_token)))) == "a/0"
