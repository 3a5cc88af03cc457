"""Ways in which RocketMQ uses a store, and everything it appends there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.load import BODY_BYTES, LOAD_QUEUES, Load
from tests.interop.message_view import Seen, in_log_order
from tests.interop.peer import RETRY, Outgoing, Peer
from tests.interop.release import release
from tests.interop.written_store import EVENTS, LONG
from tests.support.real_group import QUEUES, SEGMENT_BYTES, TOPIC
from tests.support.waiting import eventually

TOPICS: Mapping[str, int] = {TOPIC: QUEUES, EVENTS: 1, LONG: 1}
"""What it appends to, and its queues."""


@dataclass(frozen=True, slots=True)
class Visit:
    """Which release, with which settings, and how it ended: closed, or killed while messages were sent to it."""

    version: str
    settings: Mapping[str, str] = field(default_factory=dict)
    killed: bool = False

    @property
    def sealed(self) -> bool:
        """Whether every record it appends carries the record checksum."""
        return bool(self.settings)


VISITS = {
    "5.3.3": Visit("5.3.3"),
    "5.3.3-killed": Visit("5.3.3", killed=True),
    "5.3.3-with-record-checksums": Visit("5.3.3", {"enabledAppendPropCRC": "true"}),
    "5.3.3-with-record-checksums-killed": Visit("5.3.3", {"enabledAppendPropCRC": "true"}, killed=True),
    "4.9.7": Visit("4.9.7"),
    "4.9.7-killed": Visit("4.9.7", killed=True),
}
KILLED = [name for name, visit in VISITS.items() if visit.killed]
CLOSED = [name for name, visit in VISITS.items() if not visit.killed]
LOAD = "load-there"
ANSWERS_BEFORE_THE_KILL = 25


@dataclass(frozen=True, slots=True)
class Visited:
    """The store afterwards: RocketMQ appended bytes [before, end); `messages` are its own reading of them.

    Where it was killed `load` comes behind, and there may be a last record that is torn.
    """

    visit: Visit
    folder: Path
    before: int
    end: int
    messages: tuple[Seen, ...]
    load: Load

    def ends_at(self, end: int) -> bool:
        """Whether its log may end there."""
        return end > self.end if self.visit.killed else end == self.end


def pay(visit: Visit, folder: Path) -> Visited:
    """Open the store, append messages of every kind that the Java client makes, read them, and end as the visit says."""
    with Peer(release(visit.version), folder, SEGMENT_BYTES, **visit.settings) as peer:
        before = peer.end
        for topic in TOPICS.keys() - peer.topics().keys():
            peer.create(topic, TOPICS[topic])
        _append(peer)
        found = in_log_order(list(_read(peer)))
        end = peer.end
        load = Load(LOAD, frozenset())
        if visit.killed:
            load = kill_under_load(peer)
        else:
            peer.close()
    return Visited(visit, folder, before, end, tuple(each for each in found if each.position >= before), load)


def kill_under_load(peer: Peer) -> Load:
    """Kill the broker while messages are sent to it; what their producer was told."""
    peer.create(LOAD, LOAD_QUEUES)
    peer.begin_load(LOAD, BODY_BYTES)
    peer.wait_told(ANSWERS_BEFORE_THE_KILL)
    told = peer.kill_under_load()
    return Load(LOAD, frozenset((line["queue"], line["queueOffset"], line["number"]) for line in told if line["status"] == "SEND_OK"))


def _append(peer: Peer) -> None:
    for queue in range(2):
        peer.produce(TOPIC, queue, [Outgoing(b"%d" % number, "tag", "key one", number, {"name": "vålue"}) for number in range(5)])
    peer.produce(TOPIC, 2, [Outgoing(b"compressed " * 20_000), Outgoing(bytes(range(256)) * 2_000)])
    peer.produce(LONG, 0, [Outgoing(b"in a batch, %d" % number) for number in range(10)], batch=True)
    peer.produce(EVENTS, 0, [Outgoing(b"delayed", delay_level=1)])
    peer.send_back(TOPIC, 0, 1)
    eventually(lambda: any(line["body"] == b"delayed" for line in peer.read(EVENTS)), "the delayed message is delivered")
    eventually(lambda: peer.read(RETRY), "the message that was handed back is delivered again")


def _read(peer: Peer) -> Iterator[Seen]:
    return (Seen.pulled(line) for topic in (*TOPICS, RETRY) for line in peer.read(topic))
