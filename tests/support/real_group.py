"""One broker group of real processes, with what tests do to it and what they may see of it."""

import contextlib
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from dittomq._pb.ditto.admin.v1 import admin_pb2 as pb
from dittomq.client import Client
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus
from dittomq.testing import LocalCluster, Shape
from tests.simulation.parser import Malformed, ParsedLog, parse_log
from tests.support.waiting import PATIENCE_S, eventually

MASTER = "a/0"  # leads a new group, and for good where failover is manual
TOPIC = "orders"
UNWRITTEN = "unwritten"  # a topic that only the tables know
QUEUES = 4
SEGMENT_BYTES = 1024 * 1024  # small: a test sees several segments, and reads whole files quickly
MASTER_GONE_MS = 500
_NOT_OPENED_YET = "the group record decides who leads"  # why a process that was started as a master becomes a slave

Answer = TypeVar("Answer", bound=Message)
Settings = Mapping[str, str | int | list[str]]


def shape(
    slaves: int = 2,
    *,
    master: Settings | None = None,
    slave: Settings | None = None,
    nameserver: Settings | None = None,
    automatic: bool = False,
) -> Shape:
    """A group with small segments, whose slaves soon know that their master is gone, and whose nodes register every second.

    A slave that is waited for twice for 0.3 s leaves the set in sync, so that tests need not wait for long. Unless it is `automatic`,
    only a/0 leads, however often it dies, until an operator says otherwise.
    """
    both: Settings = {
        "store.segment_bytes": SEGMENT_BYTES,
        "node.registration_period_ms": 1_000,
        "replication.ack_timeout_ms": 300,
        "failover.mode": "automatic" if automatic else "manual",
    }
    return Shape(
        slaves=slaves,
        master_settings={**both, **(master or {})},
        slave_settings={**both, "reading.master_timeout_ms": MASTER_GONE_MS, **(slave or {})},
        usual_ports=False,
        nameserver_settings=nameserver or {},
    )


@dataclass(frozen=True, slots=True)
class RealGroup:
    """A cluster and a client of it; topics `orders` and `unwritten` are there. `elects`: replicas elect another master by themselves.

    Of several groups it is the one named `broker`, whose `topic` no other has.
    """

    cluster: LocalCluster
    mq: Client
    elects: bool = False
    broker: str = "a"
    topic: str = TOPIC

    @property
    def copies(self) -> tuple[str, ...]:
        """The brokers, a/0 first."""
        return tuple(node.name for node in self.cluster.nodes if node.name.startswith(f"{self.broker}/"))

    @property
    def slaves(self) -> tuple[str, ...]:
        """All but a/0."""
        return self.copies[1:]

    def leader(self, *, but: Iterable[str] = ()) -> str:
        """The node that takes writes now, "" for none; nodes in `but` and those that do not run are not asked."""
        asked = [name for name in self.copies if name not in set(but) and self.cluster.is_alive(name)]
        return next((name for name in asked if self.writable(name)), "")

    def master(self, *, but: Iterable[str] = (), within_s: float = PATIENCE_S) -> str:
        """Wait until a node takes writes; returns its name."""
        return eventually(lambda: self.leader(but=but), "a node takes writes", within_s=within_s)

    def wait_led_by_all(self, within_s: float = PATIENCE_S) -> str:
        """Wait until a node leads and all others follow it in sync; returns its name."""

        def led() -> str:
            name = self.leader()
            return name if name and self.leads_all(name) else ""

        return eventually(led, "a node leads, and all others follow in sync", within_s=within_s)

    def let_lead(self, name: str = MASTER) -> None:
        """An operator lets that node lead, as planned or, where no node does, by an election; all others follow it in sync afterwards."""

        def leads() -> bool:
            if (leader := self.leader()) == name:
                return self.leads_all(name)
            order = self.mq.admin.switchover if leader else self.mq.admin.failover
            order(name)
            return False

        eventually(leads, f"{name} leads, and all others follow in sync")

    def address(self, name: str) -> str:
        """Where clients reach a node."""
        return self.cluster.node(name).address

    def status(self, name: str = MASTER) -> HaStatus:
        """The node's own view."""
        return self.mq.admin.ha_status(self.address(name))

    def writable(self, name: str = MASTER) -> bool:
        """Whether the node leads and takes writes now."""
        try:
            return self.status(name).writable
        except DittoError:
            return False

    def leads_all(self, name: str) -> bool:
        """Whether it takes writes and all other copies follow it in sync; a master also counts in sync who is on its way."""
        status = self.status(name)
        return status.writable and sum(view.role == "slave" and view.state == "in sync" for view in status.nodes) == len(self.slaves)

    def slave_state(self, name: str, master: str = MASTER) -> str:
        """What the master says of a slave."""
        return next((view.state for view in self.status(master).nodes if view.node == name), "unknown")

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a node's process."""
        os.kill(self.cluster.pid(name), number)

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """The node's process stands still while the block runs."""
        self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(name, signal.SIGCONT)

    def exit_status(self, name: str, within_s: float = PATIENCE_S) -> int:
        """The exit status of a node whose process ends by itself."""
        process = self.cluster.node(name).process
        assert process is not None

        def ended() -> "os.waitid_result | None":
            return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

        found = eventually(ended, f"{name} has ended", within_s=within_s)
        assert found is not None
        return found.si_status

    def events(self, name: str, *kinds: str) -> list[dict[str, Any]]:
        """Every log line of those events that the node wrote, over all of its lives."""
        entries = (json.loads(line) for line in self.cluster.log_file(name).read_text().splitlines() if line.startswith("{"))
        return [entry for entry in entries if entry["event"] in kinds]

    def stopped(self, name: str) -> str:
        """How the node's newest process found that its store was stopped; one that changes its role opens it once more."""
        found, opens_again = "", False
        for entry in self.events(name, "store_opened", "service_resumed"):
            if entry["event"] == "store_opened":
                found = found if opens_again else entry["stopped"]
            opens_again = entry["event"] == "service_resumed" and entry["why"] != _NOT_OPENED_YET
        return found

    def metrics(self, name: str) -> dict[str, float]:
        """What the node's metrics say now, by the name of each sample with its labels."""
        lines = self._ops(name, "/metrics").splitlines()
        return {sample: float(value) for sample, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}

    def is_ready(self, name: str) -> bool:
        """Whether the node's ops port says so."""
        with contextlib.suppress(urllib.error.URLError):
            return self._ops(name, "/readyz") == "ok\n"
        return False

    def _ops(self, name: str, page: str) -> str:
        node = self.cluster.node(name)
        with urllib.request.urlopen(f"http://{node.host}:{node.ports.ops}{page}", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    def last_words(self, name: str) -> str:
        """The last line that the node printed."""
        return self.cluster.log_file(name).read_text().splitlines()[-1]

    def call(self, name: str, method: str, request: Message, answer: type[Answer]) -> Answer:
        """One call of "package.Service/Method" on a node, beside the client library and its checks; raises grpc.RpcError."""
        [only] = self.stream(name, method, [request], answer)
        return only

    def stream(self, name: str, method: str, requests: Iterable[Message], answer: type[Answer], *, port: int = 0) -> list[Answer]:
        """All answers to a stream of requests; `port` when it is not the clients' port."""
        node = self.cluster.node(name)
        address = f"{node.host}:{port or node.ports.clients}"
        with grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)]) as channel:
            calling: Any = channel.stream_stream(f"/{method}", lambda request: request.SerializeToString(), answer.FromString)
            return list(calling(iter(requests), timeout=PATIENCE_S))

    def topics(self, name: str) -> list[str]:
        """The topics that one node knows."""
        listed = self.call(name, "ditto.admin.v1.TopicService/ListTopics", pb.ListTopicsRequest(), pb.ListTopicsResponse)
        return [topic.name for topic in listed.topics]

    def parsed_log(self, name: str) -> ParsedLog:
        """The node's commit log, read from its files by a parser that shares nothing with the product."""
        return parse_log({f"commitlog/{path.name}": path.read_bytes() for path in self._log_files(name)})

    def logs(self, *, killed: str = "") -> dict[str, bytes]:
        """Every copy's log from its first byte to its end. That of a killed node, which may end in a torn record, is not parsed."""
        logs = {name: self.parsed_log(name).content for name in self.copies if name != killed}
        return logs if not killed else {**logs, killed: b"".join(path.read_bytes() for path in self._log_files(killed))}

    def _log_files(self, name: str) -> list[Path]:
        return sorted((self.cluster.data_dir(name) / "commitlog").iterdir())

    def wait_flushed(self, count: int, master: str = MASTER) -> int:
        """Wait until the master's log holds so many messages, all of them flushed; returns its end."""

        def end_of_all() -> int:
            with contextlib.suppress(Malformed):  # it is just being written
                if len(self.parsed_log(master).records) == count:
                    status = self.status(master)
                    return status.end if status.flushed == status.end else 0
            return 0

        return eventually(end_of_all, f"the master has flushed {count} messages")

    def wait_equal(self, within_s: float = PATIENCE_S) -> int:
        """Wait until every copy has flushed the master's end, knows it to be confirmed and has it in its queues; returns that end."""

        def end_of_all() -> int:
            ends = {end for status in map(self.status, self.copies) for end in (status.end, status.flushed, status.confirmed)}
            ends |= {view.applied or 0 for name in self.copies for view in self.status(name).nodes if view.node == name}
            return ends.pop() if len(ends) == 1 else 0

        return eventually(end_of_all, "all copies end at the same confirmed offset", within_s=within_s)


@contextlib.contextmanager
def real_group(folder: Path, of: Shape | None = None) -> Iterator[RealGroup]:
    """A group that is in sync and has both topics on every node; all that still runs of it is ended with the block."""
    with group_of(LocalCluster(folder / "cluster", of or shape())) as group:
        yield group


@contextlib.contextmanager
def group_of(started: LocalCluster) -> Iterator[RealGroup]:
    """The same of a cluster that is started here."""
    with started as cluster, Client(cluster.nameserver) as mq:
        group = RealGroup(cluster, mq, elects=cluster.settled().shape.master_settings.get("failover.mode") != "manual")
        if not group.elects and group.slaves:
            group.let_lead(MASTER)  # a new group is created by the node that is ready first
        for topic in (UNWRITTEN, TOPIC):
            [created] = mq.admin.create_topic(topic, QUEUES)
            assert created.error is None
            eventually(lambda topic=topic: mq.route(topic).queues, f"the nameserver knows {topic}")  # type: ignore[misc]
        for name in group.copies:
            eventually(lambda name=name: TOPIC in group.topics(name), f"{name} knows the topics")  # type: ignore[misc]
        yield group
