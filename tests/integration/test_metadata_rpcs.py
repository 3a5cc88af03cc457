"""The tables and the topics of a broker through real gRPC: what one node holds, the other one reads."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc.aio
import pytest

from dittomq._pb.ditto.admin.v1 import admin_pb2, admin_pb2_grpc
from dittomq._pb.ditto.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from dittomq.broker.metadata_sync import MetadataPuller, take_tables
from dittomq.broker.servicers.metadata import MetadataServicer
from dittomq.broker.servicers.topics import TopicServicer
from dittomq.broker.topics import MasterTopics, SlaveTopics, TopicChanges, TopicReads
from dittomq.broker.version_watch import VersionWatches
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import InvalidField, NotMaster, Unavailable, VersionConflict
from dittomq.metadata.formats import DELAY_OFFSETS, GROUPS, KINDS, TOPICS
from dittomq.metadata.rows import ConsumerOffset, DelayOffset, GroupConfig
from dittomq.metadata.tables import Ask, QueueMinimums, Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch
from dittomq.rpc.admission import AdmissionControl
from dittomq.rpc.channel import Channels, call
from dittomq.rpc.headers import Answerer, GroupTarget
from dittomq.rpc.interceptors import CallInterceptor, Unobserved
from dittomq.rpc.metadata_client import MetadataClient
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import FakeTopicStore, MetadataNode, nothing_under_way, whole_table
from tests.support.unread_pages import refused_when_unread
from tests.support.virtual_time import under
from tests.support.waiting import PATIENCE_S

MEMORY_BYTES = 1 << 30
A_0 = Answerer("a/0", "test", 1)
OWN_GROUP = GroupTarget("test", "a")


async def refuse_offsets(_: Sequence[ConsumerOffset]) -> NoReturn:
    raise NotMaster("a/0", "")


@asynccontextmanager
async def serving(node: MetadataNode, changes: TopicChanges | None = None, here: Answerer = A_0) -> AsyncIterator[str]:
    """The address of a broker that answers from the node's tables."""
    store, room = FakeTopicStore(), AdmissionControl(MEMORY_BYTES)
    master = MasterTopics("a/0", node.metadata, store, InlineLane(), node.clock, lambda: 1, nothing_under_way)
    server = grpc.aio.server(interceptors=[CallInterceptor(lambda: here, OsClock(), random.Random(1), Unobserved())])
    metadata_pb2_grpc.add_MetadataServiceServicer_to_server(
        MetadataServicer(node.metadata, room, VersionWatches(here.node, node.metadata, node.clock), refuse_offsets), server
    )
    reads = TopicReads("a/0", node.metadata, store, InlineLane())
    admin_pb2_grpc.add_TopicServiceServicer_to_server(TopicServicer(reads, changes or master, room), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


MINIMUMS = {(f"gone{number // 1_000}", number % 1_000): 2**62 + number for number in range(2_100)}


class Replacing:
    """Makes the next table of other rows."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __call__(self, table: Table[Any]) -> Table[Any]:
        return table.changed(self.rows, 5, 1_000)


async def fill(node: MetadataNode) -> None:
    rows: list[tuple[Any, list[Any]]] = [
        (TOPICS, [TopicConfig(f"t{n:04}", n % 1_024, 4, 7, 3, True, {"+a": "b"}, "MULTI_TAG", {"x": [1, {2: "3"}]}) for n in range(2_001)]),
        (GROUPS, [GroupConfig("g", False, False, False, True, 2, -1, 3, 0, {"c": "d"}, {"groupRetryPolicy": {"type": "CUSTOMIZED"}})]),
        (DELAY_OFFSETS, [DelayOffset(1, 0, 0), DelayOffset(18, 9, 4)]),
    ]
    for kind, new in rows:
        await node.metadata.change(kind, Replacing(new))
    node.metadata.offsets.put([ConsumerOffset("t", "g", 0, 0), ConsumerOffset("t", "g", 1, 2**62, 3, 7 << 32)], 5, 1_000)
    await node.metadata.change(TOPICS, lambda table: table.hiding(MINIMUMS))


def test_a_slave_holds_its_masters_tables_field_by_field(tmp_path: Path) -> None:
    hidden: dict[tuple[str, int], int] = {}

    async def hide(minimums: QueueMinimums) -> None:
        hidden.update(minimums)

    async def story() -> None:
        master, slave = MetadataNode.make(tmp_path / "a0"), MetadataNode.make(tmp_path / "a1", "a/1")
        await fill(master)
        async with serving(master) as address, Channels(GrpcTransport()) as channels:
            puller = MetadataPuller(MetadataClient(channels, OWN_GROUP, lambda: address), slave.metadata, slave.clock, hide)
            await puller.pull_once()

        for kind in KINDS:
            assert puller.status[kind.name].problem == ""
            assert whole_table(slave.metadata, kind) == whole_table(master.metadata, kind)
        assert hidden == MINIMUMS

    (tmp_path / "a0").mkdir()
    (tmp_path / "a1").mkdir()
    asyncio.run(story())


STRANGERS = [Answerer("b/0", "test", 7), Answerer("a/0", "other", 7)]


@pytest.mark.parametrize("stranger", STRANGERS, ids=["of another group", "of another cluster"])
def test_impostor_at_the_masters_address_changes_no_table_of_a_slave(tmp_path: Path, stranger: Answerer) -> None:
    """However new the tables are that it has: a node that takes them would keep them, and hide messages of its own group for good."""
    hidden: dict[tuple[str, int], int] = {}

    async def hide(minimums: QueueMinimums) -> None:
        hidden.update(minimums)

    async def story() -> None:
        other, slave = MetadataNode.make(tmp_path / "b0", stranger.node), MetadataNode.make(tmp_path / "a1", "a/1")
        await fill(other)
        await slave.metadata.change(TOPICS, lambda table: table.changed([TopicConfig("orders")], 1, 1_000))
        async with serving(other, here=stranger) as address, Channels(GrpcTransport()) as channels:
            source = MetadataClient(channels, OWN_GROUP, lambda: address)
            puller = MetadataPuller(source, slave.metadata, slave.clock, hide)
            await puller.pull_once()
            with pytest.raises(Unavailable):
                await take_tables(source, slave.metadata, slave.clock)

        assert list(slave.metadata.table(TOPICS).rows) == ["orders"]
        assert all(whole_table(slave.metadata, kind) == Table() for kind in KINDS if kind is not TOPICS)
        assert all(stranger.node in status.problem for status in puller.status.values())
        assert hidden == {}

    (tmp_path / "b0").mkdir()
    (tmp_path / "a1").mkdir()
    asyncio.run(story())


@under(asyncio.run)
async def test_an_equal_version_is_answered_without_rows_and_an_old_token_as_changed(tmp_path: Path) -> None:
    master = MetadataNode.make(tmp_path)
    await fill(master)
    async with serving(master) as address, Channels(GrpcTransport()) as channels:
        remote = MetadataClient(channels, OWN_GROUP, lambda: address)
        first = await remote.fetch(TOPICS, Ask(page_size=10), PATIENCE_S)
        equal = await remote.fetch(TOPICS, Ask(known=first.version), PATIENCE_S)
        assert (equal.not_modified, equal.rows) == (True, ())

        await master.metadata.lead(Epoch(6), {})

        with pytest.raises(VersionConflict):
            await remote.fetch(TOPICS, Ask(page_size=10, page_token=first.next_token), PATIENCE_S)
        with pytest.raises(InvalidField, match="page_size"):
            await remote.fetch(TOPICS, Ask(page_size=10_001), PATIENCE_S)


@under(asyncio.run)
async def test_a_master_that_is_not_known_or_not_there_is_unavailable() -> None:
    async with Channels(GrpcTransport()) as channels:
        with pytest.raises(Unavailable, match="not known"):
            await MetadataClient(channels, OWN_GROUP, lambda: "").fetch(TOPICS, Ask(), 1)
        with pytest.raises(Unavailable):
            await MetadataClient(channels, OWN_GROUP, lambda: "127.0.0.1:1").fetch(TOPICS, Ask(), 1)


@under(asyncio.run)
async def test_a_topic_is_created_described_listed_changed_and_deleted(tmp_path: Path) -> None:
    async with serving(MetadataNode.make(tmp_path)) as address, Channels(GrpcTransport()) as channels:
        stub = admin_pb2_grpc.TopicServiceStub(channels.to(address))

        async def ask(method: Any, request: object) -> Any:
            return await call(method, request, who=address, deadline_s=PATIENCE_S)

        created = await ask(stub.CreateTopic, admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name="orders")))
        assert (created.created, created.topic.read_queues, created.topic.permission) == (True, 8, 6)
        described = await ask(stub.GetTopic, admin_pb2.GetTopicRequest(name="orders"))
        assert [queue.queue for queue in described.queues] == list(range(8))
        listed = await ask(stub.ListTopics, admin_pb2.ListTopicsRequest())
        assert [topic.name for topic in listed.topics] == ["orders"]
        asked = admin_pb2.Topic(name="orders", write_queues=4)
        changed = await ask(stub.UpdateTopic, admin_pb2.UpdateTopicRequest(topic=asked, update_mask=["write_queues"]))
        assert (changed.changed, changed.topic.read_queues, changed.topic.write_queues) == (True, 8, 4)
        for paths in ([], ["name"], ["permission", "order"]):
            with pytest.raises(InvalidField, match="update_mask"):
                await ask(stub.UpdateTopic, admin_pb2.UpdateTopicRequest(topic=asked, update_mask=paths))
        for absent in ("read_queues", "permission"):
            with pytest.raises(InvalidField, match=f"topic.{absent}"):
                await ask(stub.UpdateTopic, admin_pb2.UpdateTopicRequest(topic=asked, update_mask=["write_queues", absent]))
        await ask(stub.DeleteTopic, admin_pb2.DeleteTopicRequest(name="orders"))
        assert not (await ask(stub.ListTopics, admin_pb2.ListTopicsRequest())).topics


@under(asyncio.run)
async def test_a_slave_names_its_master_on_the_wire(tmp_path: Path) -> None:
    slave = SlaveTopics("a/1", lambda: "10.0.0.7:10911")
    async with serving(MetadataNode.make(tmp_path), slave) as address, Channels(GrpcTransport()) as channels:
        stub = admin_pb2_grpc.TopicServiceStub(channels.to(address))
        with pytest.raises(NotMaster) as refused:
            await call(stub.DeleteTopic, admin_pb2.DeleteTopicRequest(name="orders"), who=address, deadline_s=PATIENCE_S)
        assert refused.value.master == "10.0.0.7:10911"


@under(asyncio.run)
async def test_rows_of_any_unicode_cross_the_wire(tmp_path: Path) -> None:
    node = MetadataNode.make(tmp_path)
    odd = [TopicConfig("\u0391\U0001f600", attributes={"ключ": "値"}, other_fields={"é": "\n\t\\"})]
    await node.metadata.change(TOPICS, lambda table: table.changed(odd, 1, 1))
    async with serving(node) as address, Channels(GrpcTransport()) as channels:
        page = await MetadataClient(channels, OWN_GROUP, lambda: address).fetch(TOPICS, Ask(), PATIENCE_S)
        assert sorted_rows(page.rows) == node.metadata.table(TOPICS).rows


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("ditto.metadata.v1.MetadataService/GetAllTopicConfig", metadata_pb2.GetAllTopicConfigRequest(page_size=2_000)),
        ("ditto.admin.v1.TopicService/ListTopics", admin_pb2.ListTopicsRequest(page_size=2_000)),
        pytest.param("ditto.admin.v1.TopicService/GetTopic", admin_pb2.GetTopicRequest(name="wide"), marks=pytest.mark.tier("nightly")),
    ],
    ids=["a table", "topics", "queues"],
)
@under(asyncio.run)
async def test_unread_metadata_pages_take_bounded_memory(tmp_path: Path, method: str, request_: Any) -> None:
    """Other clients are answered."""
    node = MetadataNode.make(tmp_path)
    rows = [TopicConfig("wide", 8_192, 8_192), *(TopicConfig(f"{number:0>120}") for number in range(2_000))]
    await node.metadata.change(TOPICS, lambda table: table.changed(rows, 1, 1))
    async with serving(node) as address:
        await refused_when_unread(address, method, request_)
