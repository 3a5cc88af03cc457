"""What a store may hold or say that no node can use: each gets one sentence, and no write."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
import pytest

from dittomq._pb.ditto.coordination.v1 import coordination_pb2 as pb
from dittomq._pb.ditto.coordination.v1 import coordination_pb2_grpc
from dittomq._pb.etcd.v3 import etcd_pb2, etcd_pb2_grpc
from dittomq.broker.config import BrokerConfig, NodeTable
from dittomq.coordination.made import make_coordination
from dittomq.coordination.settings import CoordinationTable
from dittomq.doors.clock import OsClock
from dittomq.doors.coordination import CoordinationStore, GroupKey, Versioned, WriteUnknown
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.errors import ConfigError, DittoError, UnreadableRecord
from dittomq.group_record import MAX_RECORD_BYTES, encode
from tests.coordination.backends import CLUSTER, ETCD, door_of
from tests.support.group_records import group_record
from tests.support.virtual_time import under

KEY = GroupKey(CLUSTER, "a")
FIRST = group_record("a", "first")
NAMESERVER = CoordinationTable()
KINDS = pytest.mark.parametrize("settings", [NAMESERVER, ETCD], ids=["nameserver", "etcd"])


class Scripted(coordination_pb2_grpc.CoordinationServiceServicer, etcd_pb2_grpc.KVServicer):
    """Both kinds of store at once, which hold any bytes and answer writes as told."""

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.version = "v1"
        self.key = b"/dittomq/test/a"
        self.written = pb.CompareAndSetResponse(written=True)
        self.changed = etcd_pb2.TxnResponse(succeeded=True)

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.GetResponse:
        return pb.GetResponse(record=self.document, version=self.version)

    async def CompareAndSet(self, request: pb.CompareAndSetRequest, context: Any) -> pb.CompareAndSetResponse:
        return self.written

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchResponse]:
        yield pb.WatchResponse()

    async def Range(self, request: etcd_pb2.RangeRequest, context: Any) -> etcd_pb2.RangeResponse:
        return etcd_pb2.RangeResponse(kvs=[etcd_pb2.KeyValue(key=self.key, value=self.document, mod_revision=7)])

    async def Txn(self, request: etcd_pb2.TxnRequest, context: Any) -> etcd_pb2.TxnResponse:
        return self.changed


def play(scripted: Scripted, settings: CoordinationTable, story: Callable[[CoordinationStore], Awaitable[None]]) -> None:
    async def played() -> None:
        server = grpc.aio.server()
        coordination_pb2_grpc.add_CoordinationServiceServicer_to_server(scripted, server)
        etcd_pb2_grpc.add_KVServicer_to_server(scripted, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        door = door_of(settings, f"127.0.0.1:{port}")
        try:
            await story(door)
        finally:
            await door.close()
            await server.stop(0)

    asyncio.run(played())


def sentence_of(document: bytes, settings: CoordinationTable, scripted: Scripted | None = None) -> str:
    sentences = []

    async def story(door: CoordinationStore) -> None:
        with pytest.raises(UnreadableRecord) as raised:
            await door.read(KEY)
        sentences.append(str(raised.value))

    play(scripted or Scripted(document), settings, story)
    return sentences[0]


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(encode(FIRST)) | fields).encode()


@KINDS
@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"\xff\xfe nonsense", "it is no group record"),
        (b"{}", "it is no group record"),
        (changed(version=2), "it has version 2, and this dittomq reads up to 1; upgrade this node"),
        (changed(master="other.1"), "its master other.1 is none of its members"),
        (changed(members=[]), "it is no group record"),
        (encode(group_record("b", "first")), "under the name of test/a it names b/0, b/1, of another broker group"),
        (b"[" * (MAX_RECORD_BYTES + 1), "it has 65,537 bytes, and a record has at most 65,536"),
        (b"[" * MAX_RECORD_BYTES, "it is no group record"),
    ],
)
def test_what_is_no_record_of_this_group_is_refused_in_a_sentence(settings: CoordinationTable, document: bytes, problem: str) -> None:
    said = sentence_of(document, settings)

    assert problem in said
    assert said.startswith(f"the group record in {settings.backend} 127.0.0.1:")
    assert said.endswith("look at it, and delete it if nobody needs it")


@KINDS
def test_what_a_later_version_adds_is_read_over_and_written_back_by_its_bytes(settings: CoordinationTable) -> None:
    async def story(door: CoordinationStore) -> None:
        found = await door.read(KEY)
        assert found is not None
        assert found.record == FIRST

    play(Scripted(changed(later="field")), settings, story)


def test_a_nameserver_that_answers_half_a_record_is_not_believed() -> None:
    no_version, no_content = Scripted(encode(FIRST)), Scripted(b"")
    no_version.version = ""

    assert "it has no version" in sentence_of(b"", NAMESERVER, no_version)
    assert "it has a version and no content" in sentence_of(b"", NAMESERVER, no_content)


def test_an_etcd_that_answers_another_key_is_not_believed() -> None:
    scripted = Scripted(encode(FIRST))
    scripted.key = b"/dittomq/other/a"

    assert "it was asked for /dittomq/test/a, and answered with another key" in sentence_of(b"", ETCD, scripted)


@KINDS
def test_a_write_whose_answer_names_no_version_is_unknown(settings: CoordinationTable) -> None:
    async def story(door: CoordinationStore) -> None:
        outcome = await door.write(KEY, FIRST, None)
        assert isinstance(outcome, WriteUnknown)
        assert "its answer names no" in outcome.problem

    play(Scripted(b""), settings, story)


@KINDS
def test_a_version_of_another_kind_of_store_conflicts_or_is_refused(settings: CoordinationTable) -> None:
    scripted = Scripted(b"")
    scripted.written.written = scripted.changed.succeeded = False

    async def story(door: CoordinationStore) -> None:
        for version in ("9" * 32, "v1", "-1", ""):
            assert not isinstance(await door.write(KEY, FIRST, Versioned(FIRST, version)), WriteUnknown)

    play(scripted, settings, story)


@KINDS
@under(asyncio.run)
async def test_a_server_of_another_kind_is_unavailable(settings: CoordinationTable) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    door = door_of(settings, f"127.0.0.1:{port}")
    try:
        with pytest.raises(DittoError, match="does not know this call"):
            await door.read(KEY)
        # Where the refusal overtakes the request, gRPC forgets its text.
        with pytest.raises(DittoError, match=r"does not know this call|ended the call while a message was on its way"):
            await anext(door.watch(KEY))
    finally:
        await door.close()
        await server.stop(0)


def test_two_nameservers_cannot_both_keep_the_record() -> None:
    endpoints = ("ns-0:9876", "ns-1:9876")
    config = BrokerConfig(node=NodeTable(nameservers=endpoints), coordination=CoordinationTable(endpoints=endpoints))

    assert [problem for problem in config.problems() if problem[0] == "coordination.endpoints"] == [
        ("coordination.endpoints", "names several nameservers, and only one may keep the group record; name one, or use etcd")
    ]
    with pytest.raises(ConfigError, match="only one may keep the group record"):
        door_of(config.coordination, *endpoints)


def test_by_default_the_first_nameserver_keeps_the_record() -> None:
    config = BrokerConfig(node=NodeTable(nameservers=("ns-0:9876", "ns-1:9876")))

    made = make_coordination(
        config.coordination,
        config.coordination_endpoints,
        transport=GrpcTransport(),
        clock=OsClock(),
        workers=ThreadWorkers(),
        environment={},
    )
    assert made is not None
    assert made.name == "nameserver ns-0:9876"
