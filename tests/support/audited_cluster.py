"""Copies served over real gRPC by the product's own audit code, and a nameserver that lists them."""

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc.aio

from dittomq._pb.ditto.admin.v1 import admin_pb2, admin_pb2_grpc
from dittomq._pb.ditto.audit.v1 import audit_pb2_grpc
from dittomq._pb.ditto.naming.v1 import naming_pb2, naming_pb2_grpc
from dittomq.broker.audit_reads import AuditedStore, AuditReads
from dittomq.broker.retention_pins import PinParts, Pins
from dittomq.broker.servicers.audit import AuditServicer
from dittomq.commitlog.records.digest import leaf_digest
from dittomq.copies import LEAF_BYTES, ReplicaDescription
from dittomq.doors.clock import OsClock
from dittomq.doors.workers import ThreadWorkers
from dittomq.epoch_history import EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion
from dittomq.rpc.headers import Answerer
from dittomq.rpc.interceptors import CallInterceptor, Unobserved
from tests.support.inline_lane import InlineLane
from tests.support.stores import Machine

Context = grpc.aio.ServicerContext[Any, Any]


class BytesStore:
    """A store that is a byte string. Reads of bytes in `bad` fail as a disk does."""

    def __init__(self, data: bytes, segment_bytes: int) -> None:
        self.data = data
        self.segment_bytes = segment_bytes
        self.min_offset = PhysicalOffset(0)
        self.bad: range = range(0)

    @property
    def end(self) -> PhysicalOffset:
        return PhysicalOffset(len(self.data))

    def segment_of(self, offset: PhysicalOffset) -> tuple[PhysicalOffset, PhysicalOffset]:
        start = offset - offset % self.segment_bytes
        return PhysicalOffset(start), PhysicalOffset(start + self.segment_bytes)

    def leaf_digests(self, start: PhysicalOffset, end: PhysicalOffset, salt: int = 0) -> list[bytes]:
        return [leaf_digest(self.read(PhysicalOffset(at), min(LEAF_BYTES, end - at)), salt) for at in range(start, end, LEAF_BYTES)]

    def read(self, start: PhysicalOffset, length: int) -> bytes:
        if self.bad and start < self.bad.stop and self.bad.start < start + length:
            raise OSError(5, "Input/output error")
        return self.data[start : start + length]


@dataclass(slots=True)
class ServedCopy:
    """One node. `before_describe` is called with the number of the call, to change what it says. It may be silent about its status."""

    description: ReplicaDescription
    store: AuditedStore
    reachable: bool = True
    tells_status: bool = True
    before_describe: Callable[[int, "ServedCopy"], None] = field(default=lambda _number, _copy: None)
    described: int = 0
    address: str = ""
    pins: Pins = field(init=False)

    def __post_init__(self) -> None:
        storage = Machine(random.Random(1)).storage()
        storage.make_folder("dittomq")
        parts = PinParts(self.description.node, storage, self.store, InlineLane(), OsClock(), random.Random(2))
        self.pins = Pins(parts)

    def describe(self) -> ReplicaDescription:
        self.described += 1
        self.before_describe(self.described, self)
        return self.description


def served(node: str, store: AuditedStore) -> ServedCopy:
    """A copy that holds what its store does, all of it flushed and confirmed, all of it written in epoch 1."""
    end = store.end
    segment_start, segment_end = store.segment_of(PhysicalOffset(0))
    description = ReplicaDescription(
        node=node,
        cluster="test",
        replica_uuid=node,
        role="SYNC_MASTER" if node.endswith("/0") else "SLAVE",
        epoch_history=(EpochEntry(Epoch(1), 0, 99, PhysicalOffset(0)),),
        generation=0,
        min_offset=PhysicalOffset(0),
        end=end,
        flushed=end,
        confirmed=end,
        segment_bytes=segment_end - segment_start,
        topic_version=DataVersion(),
        version="test",
    )
    return ServedCopy(description, store)


class AuditedCluster:
    """Serves copies from a thread of its own until the block ends; `nameserver` is where to ask."""

    def __init__(self, copies: list[ServedCopy], slaves_expected: int | None = None) -> None:
        self.copies = copies
        self.slaves_expected = len(copies) - 1 if slaves_expected is None else slaves_expected
        self.nameserver = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[grpc.aio.Server] = []
        self._workers = ThreadWorkers()  # real threads, as a broker has

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
        self._workers.close()

    async def _start(self) -> None:
        for copy in self.copies:
            server = grpc.aio.server(interceptors=[_interceptor(copy.description.node)])
            auditing = AuditReads(copy.store, self._workers.lane("audit"), copy.describe)
            audit_pb2_grpc.add_AuditServiceServicer_to_server(AuditServicer(auditing, copy.pins), server)
            admin_pb2_grpc.add_BrokerServiceServicer_to_server(_Admin(self, copy), server)
            port = server.add_insecure_port("127.0.0.1:0")
            copy.address = f"127.0.0.1:{port}"
            if copy.reachable:
                await server.start()
                self._servers.append(server)
            else:
                await server.stop(None)
        names = grpc.aio.server()
        naming_pb2_grpc.add_NameServerServiceServicer_to_server(_Names(self), names)
        self.nameserver = f"127.0.0.1:{names.add_insecure_port('127.0.0.1:0')}"
        await names.start()
        self._servers.append(names)

    async def _stop(self) -> None:
        for server in self._servers:
            await server.stop(None)


def _interceptor(node: str) -> CallInterceptor:
    return CallInterceptor(lambda: Answerer(node, "test", 1), OsClock(), random.Random(3), Unobserved())


class _Names(naming_pb2_grpc.NameServerServiceServicer):
    def __init__(self, cluster: AuditedCluster) -> None:
        self._cluster = cluster

    async def ListBrokers(self, request: naming_pb2.ListBrokersRequest, context: Context) -> naming_pb2.ListBrokersResponse:
        nodes = []
        for copy in self._cluster.copies:
            broker, _, number = copy.description.node.partition("/")
            role = naming_pb2.BROKER_ROLE_SLAVE if int(number) else naming_pb2.BROKER_ROLE_SYNC_MASTER
            node = naming_pb2.Node(cluster="test", broker=broker, broker_id=int(number), address=copy.address)
            node.role, node.state = role, naming_pb2.BROKER_STATE_SERVING
            nodes.append(node)
        return naming_pb2.ListBrokersResponse(nodes=nodes)


class _Admin(admin_pb2_grpc.BrokerServiceServicer):
    def __init__(self, cluster: AuditedCluster, copy: ServedCopy) -> None:
        self._cluster = cluster
        self._copy = copy

    async def GetHaStatus(self, request: admin_pb2.GetHaStatusRequest, context: Context) -> admin_pb2.GetHaStatusResponse:
        if not self._copy.tells_status:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return admin_pb2.GetHaStatusResponse(replicas_expected=self._cluster.slaves_expected)
