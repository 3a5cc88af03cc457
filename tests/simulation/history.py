"""What the clients of one run were told, and which copies were put in danger: all that checkers know beside the disks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from dittomq.message import Ack, Copy, CopyState, Receipt

_TABLES_TRAVEL_S = 10.0  # a slave asks for its master's so often, where it does not hear of a change at once


class Outcome(Enum):
    """What a client knows of a publish. A client that crashed knows nothing."""

    UNKNOWN = "unknown"
    STORED = "stored"
    NOT_STORED = "not stored"


@dataclass(slots=True)
class Publish:
    """One message that a client tried to publish at some time.

    `ordered`: it asked for a queue, so it lies behind what the client published there before. `late`: it was unknown for a while
    and was perhaps sent again, so its place is open. `labels`: its tag and its keys.
    """

    at: float
    client: str
    number: int
    topic: str
    body: bytes
    ordered: bool
    labels: tuple[str, tuple[str, ...]] = ("", ())
    outcome: Outcome = Outcome.UNKNOWN
    receipt: Receipt | None = None
    told_at: float | None = None
    late: bool = False

    @property
    def name(self) -> str:
        """As findings call it."""
        return f"{self.client} #{self.number}"

    def stored(self, receipt: Receipt, at: float) -> None:
        """The client got a receipt."""
        self.outcome, self.receipt, self.told_at = Outcome.STORED, receipt, at

    def not_stored(self) -> None:
        """The client was told that it is in no log."""
        self.outcome = Outcome.NOT_STORED


@dataclass(frozen=True, slots=True)
class Read:
    """One message that a client got from `node`, which it asked at some time. `may_be_undone`: it was told so. `labels`: tag and keys."""

    at: float
    node: str
    topic: str
    queue: int
    queue_offset: int
    physical_offset: int
    record_bytes: int
    body: bytes
    may_be_undone: bool
    labels: tuple[str, tuple[str, ...]] = ("", ())


@dataclass(frozen=True, slots=True)
class Filtered:
    """One page of a reader that asked for one tag only: of the queue offsets in `span` it got `offsets`, and nothing of it is undone."""

    node: str
    topic: str
    queue: int
    tag: str
    span: range
    offsets: frozenset[int]


@dataclass(slots=True)
class Deletion:
    """A client asked at some time to delete the topic that is made again and again. `end`: nothing of that happens later."""

    at: float
    end: float
    is_done: bool


class Harm(Enum):
    """What can take bytes from a copy."""

    POWER_LOST = "power lost"
    SYNC_FAILED = "sync failed"
    DISK_LOST = "disk lost"
    LOSS_ACCEPTED = "loss accepted"


@dataclass(frozen=True, slots=True)
class Incident:
    """Harm done to one copy, "broker/id"."""

    at: float
    node: str
    harm: Harm


@dataclass(slots=True)
class Absence:
    """A node is down for longer than a supervisor needs to start it. `end` is infinite while it is."""

    node: str
    start: float
    end: float = float("inf")


@dataclass(frozen=True, slots=True)
class Reign:
    """From this time on a node was the master."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """A master that could not read a part of its log began an epoch at `start` and left at most `offsets` of each queue out before."""

    start: int
    offsets: int


@dataclass(slots=True)
class History:
    """One run. `final_reads` are those of everything at the end, by node. `syncs_matter`: the group confirms only what is flushed.

    `copies` are asked for, the master counts. `kept_from`: what lies below in the log was dropped for its age. `reigns` begin with the
    node that is configured as the master. `rotten`: bytes of a record in which bits have flipped, or that a
    disk does not give, by node and offset; mended or not.
    `filtered`: pages of readers that wanted one tag. `withheld`: ranges of a log that no longer could be had on some disk.
    `reservations`: where masters left out offsets that messages in damaged bytes may have. `topics`: when a client tried last to make each.
    """

    reigns: list[Reign]
    syncs_matter: bool
    copies: int
    kept_from: int = 0
    publishes: list[Publish] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    filtered: list[Filtered] = field(default_factory=list)
    deletions: list[Deletion] = field(default_factory=list)
    final_reads: dict[str, list[Read]] = field(default_factory=dict)
    incidents: list[Incident] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    rotten: dict[tuple[str, int], int] = field(default_factory=dict)
    withheld: list[tuple[int, int]] = field(default_factory=list)
    reservations: list[Reservation] = field(default_factory=list)
    topics: dict[str, float] = field(default_factory=dict)

    @property
    def master(self) -> str:
        """Who leads now, or was the last to."""
        return self.reigns[-1].node

    def masters_since(self, since: float) -> list[str]:
        """Who led at some time or later."""
        before = [reign for reign in self.reigns if reign.at <= since][-1:]
        return [reign.node for reign in (*before, *(reign for reign in self.reigns if reign.at > since))]

    def harmed(self, node: str, since: float, *harms: Harm) -> bool:
        """Whether one of these happened to a copy at or after some time."""
        return any(incident.node == node and incident.at >= since and incident.harm in harms for incident in self.incidents)

    def any_harmed(self, nodes: Iterable[str], since: float, *harms: Harm) -> bool:
        """Whether one of these happened to one of them at or after some time."""
        return any(self.harmed(node, since, *harms) for node in nodes)

    def has_seen(self, *harms: Harm) -> bool:
        """Whether one of these happened to any copy."""
        return any(incident.harm in harms for incident in self.incidents)

    def changed_since(self, since: float) -> bool:
        """Whether another node became the master at or after some time."""
        return any(reign.at >= since for reign in self.reigns)

    @property
    def may_lack_topics(self) -> bool:
        """Whether a topic may be gone: tables travel apart from the log, and a master that was elected may not have had it.

        That is so when a disk was lost, when an operator accepted a loss, and when another node was elected before each node had the topic.
        """
        changes = [reign.at for reign in self.reigns[1:]]
        in_time = any(made <= at < self._everybody_knows_at(made) for at in changes for made in self.topics.values())
        return in_time or self.has_seen(Harm.DISK_LOST, Harm.LOSS_ACCEPTED)

    def is_back(self, node: str, at: float) -> None:
        """Nothing holds it down any more."""
        for absence in self.absences:
            if absence.node == node:
                absence.end = min(absence.end, at)

    def _everybody_knows_at(self, made: float) -> float:
        """When each node that came up long enough has heard of a topic at the latest."""
        by_node: dict[str, float] = {}
        for absence in sorted(self.absences, key=lambda each: each.start):
            since = by_node.get(absence.node, made)
            if absence.start < since + _TABLES_TRAVEL_S and absence.end > since:
                by_node[absence.node] = absence.end
        return max(by_node.values(), default=made) + _TABLES_TRAVEL_S

    def is_safe(self, publish: Publish, copy: Copy) -> bool:
        """Whether this copy of it outlives what happened to its node since."""
        if publish.receipt is not None and (copy.node, publish.receipt.physical_offset) in self.rotten:
            return False
        if self.harmed(copy.node, publish.at, Harm.DISK_LOST):
            return False
        return copy.state is CopyState.FLUSHED or not self.harmed(copy.node, publish.at, Harm.POWER_LOST, Harm.SYNC_FAILED)

    def must_stay_away(self, publish: Publish) -> bool:
        """Whether it holds that it is in no log: one copy alone may say so where only that is asked for, and its disk may be lost."""
        return self.copies > 1 or not any(each.harm is Harm.DISK_LOST and each.at >= publish.at for each in self.incidents)

    def must_survive(self, publish: Publish) -> bool:
        """Whether what the receipt promises outlives all that happened since.

        What was confirmed does, be it by fewer members than asked: while its members' disks are not lost, and what they had not synced was
        not lost with their power. At most one disk is lost in a run. What only the master received or flushed does until another node is
        elected. Nothing outlives an operator who accepts its loss, nor its age.
        """
        receipt = publish.receipt
        assert receipt is not None
        if receipt.physical_offset < self.kept_from:
            return False
        if any(incident.at >= publish.at and incident.harm is Harm.LOSS_ACCEPTED for incident in self.incidents):
            return False
        if self.copies > 1 and Ack.REPLICA_FLUSHED in receipt.levels_reached:
            return True
        holders = [copy.node for copy in receipt.copies]
        if self.copies > 1 and not self.syncs_matter and Ack.REPLICA_RECEIVED in receipt.levels_reached:
            return not self.any_harmed(holders, publish.at, Harm.POWER_LOST, Harm.SYNC_FAILED, Harm.DISK_LOST)
        acknowledged_by = receipt.copies[0]
        led = [reign.node for reign in self.reigns if reign.at < publish.at][-1:]
        if self.changed_since(publish.at) or led not in ([], [acknowledged_by.node]):  # a master that is deposed may not know yet
            return False
        if self.harmed(acknowledged_by.node, publish.at, Harm.DISK_LOST):
            return False
        flushed = acknowledged_by.state is CopyState.FLUSHED
        return flushed or not self.harmed(acknowledged_by.node, publish.at, Harm.POWER_LOST, Harm.SYNC_FAILED)
