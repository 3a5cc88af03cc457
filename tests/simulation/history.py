"""What the clients of one run were told, and which copies were put in danger: all that checkers know beside the disks."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from dittomq.message import Ack, Copy, CopyState, Receipt

HEARS_S = 15.0  # a node that can be reached again hears of a newer epoch in less: it registers every 10 s
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
    and was perhaps sent again, so its place is open.
    """

    at: float
    client: str
    number: int
    topic: str
    body: bytes
    ordered: bool
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
    """One message that a client got from `node`, which it asked at some time. `may_be_undone`: it was told so."""

    at: float
    node: str
    topic: str
    queue: int
    queue_offset: int
    physical_offset: int
    record_bytes: int
    body: bytes
    may_be_undone: bool


class Harm(Enum):
    """What can take bytes from a copy."""

    POWER_LOST = "power lost"
    SYNC_FAILED = "sync failed"
    DISK_LOST = "disk lost"
    LOSS_ACCEPTED = "loss accepted"
    REPLACED = "another node was promoted while it was down or cut off"


@dataclass(frozen=True, slots=True)
class Incident:
    """Harm done to one copy, "broker/id"."""

    at: float
    node: str
    harm: Harm


@dataclass(slots=True)
class Apart:
    """A node that led is cut off from all who could tell it that another one leads, or none of them knows. `replaced`: one does.

    `life`: it was in when it could be reached again, None before. `end`: when it knew at the latest, None before.
    """

    node: str
    start: float
    life: int | None = None
    end: float | None = None
    replaced: bool = False

    def over(self, life: int, now: float) -> None:
        """It can be reached again."""
        self.life = life
        if not self.replaced:
            self.end = now + HEARS_S


@dataclass(slots=True)
class Absence:
    """A node is down for longer than a supervisor needs to start it. `end` is infinite while it is."""

    node: str
    start: float
    end: float = float("inf")


@dataclass(frozen=True, slots=True)
class Reign:
    """From this time on a node led the group, or had been promoted to lead it."""

    at: float
    node: str


@dataclass(slots=True)
class History:
    """One run. `final_reads` are those of everything at the end, by node. `syncs_matter`: the group confirms only what is flushed.

    `copies` are asked for, the master counts. `kept_from`: what lies below in the log was dropped for its age. `reigns` begin with the
    node that is configured to lead. `rotten`: bytes of a record in which bits have flipped, or that a
    disk does not give, by node and offset; mended or not.
    `withheld`: ranges of a log that no longer could be had on some disk.
    `topics`: when a client tried last to make each.
    """

    reigns: list[Reign]
    syncs_matter: bool
    copies: int
    kept_from: int = 0
    publishes: list[Publish] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    final_reads: dict[str, list[Read]] = field(default_factory=dict)
    incidents: list[Incident] = field(default_factory=list)
    aparts: list[Apart] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    healed_at: float = float("inf")
    rotten: dict[tuple[str, int], int] = field(default_factory=dict)
    withheld: list[tuple[int, int]] = field(default_factory=list)
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

    @property
    def may_lack_topics(self) -> bool:
        """Whether a topic may be gone: tables travel apart from the log, and who leads now may not have heard of it.

        That is so when a disk was lost, when an operator accepted a loss, and when another node was promoted in the place of a master
        that had made the topic shortly before it went down, or while it was cut off, or while that node was down.
        """
        fell = [incident.at for incident in self.incidents if incident.harm is Harm.REPLACED]
        in_time = any(made <= at < self._everybody_knows_at(made) for at in fell for made in self.topics.values())
        apart = any(self.is_replaced(each.node, made) for each in self.aparts for made in self.topics.values())
        return in_time or apart or self.has_seen(Harm.DISK_LOST, Harm.LOSS_ACCEPTED)

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

    def was_apart(self, node: str, since: float, until: float) -> bool:
        """Whether there was a time then when this node could not be told, or need not have heard yet, that another one leads."""
        return any(each.node == node and self._lasts(each, since, until) for each in self.aparts)

    def is_replaced(self, node: str, at: float) -> bool:
        """Whether another one led or came to lead in the meantime."""
        return any(each.replaced and each.node == node and self._lasts(each, at, at) for each in self.aparts)

    def was_given_up(self, node: str, at: float) -> bool:
        """Whether an operator accepted a loss while this node, which led, was cut off: what it confirms then may go with that."""
        losses = [incident.at for incident in self.incidents if incident.harm is Harm.LOSS_ACCEPTED]
        return any(
            each.replaced and each.node == node and self._lasts(each, at, at) and max(losses, default=0.0) > each.start
            for each in self.aparts
        )

    @property
    def was_split(self) -> bool:
        """Whether two nodes may have led beside each other: one of them was cut off, or could not hear of the other."""
        return any(each.replaced for each in self.aparts)

    def _lasts(self, apart: Apart, since: float, until: float) -> bool:
        latest = self.healed_at + HEARS_S
        return apart.start <= until and since <= min(apart.end or latest, latest)

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

        On q disks, more than one: always, because at most one disk is lost in a run. Received by q copies of a group that flushes later:
        unless a slave among them was harmed, because after a power loss its master leads only with what they hold. Flushed by the master:
        unless its disk, or that of a later master, was lost, or it was replaced while it was down, or did not know. Received by the master:
        unless one of these lost power too, or failed to sync. Nothing outlives an operator who accepts its loss, nor its age.
        """
        receipt = publish.receipt
        assert receipt is not None
        if receipt.physical_offset < self.kept_from:
            return False
        acknowledged_by = receipt.copies[0]
        masters = {acknowledged_by.node, *self.masters_since(publish.at)}
        if any(incident.at >= publish.at and incident.harm is Harm.LOSS_ACCEPTED for incident in self.incidents):
            return False
        if self.was_given_up(acknowledged_by.node, publish.at):
            return False
        if self.copies > 1 and Ack.REPLICA_FLUSHED in receipt.levels_reached:
            return True
        if self.copies > 1 and not self.syncs_matter and Ack.REPLICA_RECEIVED in receipt.levels_reached:
            slaves = [copy.node for copy in receipt.copies[1:]]
            if not self.any_harmed(slaves, publish.at, Harm.POWER_LOST, Harm.SYNC_FAILED, Harm.DISK_LOST):
                return True
        if self.any_harmed(masters, publish.at, Harm.DISK_LOST, Harm.REPLACED) or self.is_replaced(acknowledged_by.node, publish.at):
            return False
        flushed = acknowledged_by.state is CopyState.FLUSHED
        return flushed or not self.any_harmed(masters, publish.at, Harm.POWER_LOST, Harm.SYNC_FAILED)
