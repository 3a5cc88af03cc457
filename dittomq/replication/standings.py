"""What the replicas of a group tell each other when one is to take another's place: where each stands, and who made room for whom."""

from dataclasses import astuple, dataclass
from enum import StrEnum

from dittomq.lineage import Lineage, Rank, newest_epoch, newest_opener, rank
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.replication.degraded import Degraded
from dittomq.replication.events import SlaveHolds
from dittomq.routes import DataVersion, Opening


class Stance(StrEnum):
    """What a replica says that it does."""

    LEADING = "leading"
    RECOVERING = "recovering"
    FOLLOWING = "following"


@dataclass(frozen=True, slots=True)
class GroupRules:
    """What every node of a group is configured to agree on. `replicas_expected` counts slaves, the other two copies.

    None: an older node does not say it.
    """

    mode: str
    replicas_expected: int
    in_sync_replicas: int
    min_in_sync_replicas: int | None = None
    flush_mode: str | None = None
    release_level: str | None = None

    @property
    def copies_of_confirmed(self) -> int:
        """On so many disks is what was confirmed outside degraded ranges; an ASYNC_MASTER promises its own only, whatever it asks for."""
        return 1 if self.mode == "ASYNC_MASTER" else self.in_sync_replicas

    @property
    def witnesses(self) -> int:
        """Of so many nodes each `copies_of_confirmed` have one: they know of all that was confirmed, and nothing more is without them."""
        return self.replicas_expected - self.copies_of_confirmed + 2

    @property
    def witnesses_of_all(self) -> int:
        """What none of so many slaves has was never confirmed, whoever led; 0: that cannot be said of this group.

        It can where all that was ever confirmed is on `copies_of_confirmed` disks, more than one.
        """
        strict = self.min_in_sync_replicas == self.copies_of_confirmed > 1
        return self.witnesses if strict and (self.flush_mode, self.release_level) == ("SYNC_FLUSH", "flushed") else 0

    @property
    def may_degrade(self) -> bool:
        """Whether fewer copies may have confirmed, while a master that is silent now led."""
        return self.min_in_sync_replicas is not None and self.min_in_sync_replicas < self.copies_of_confirmed

    def agrees_with(self, other: "GroupRules") -> bool:
        """Whether nothing differs that both say."""
        return all(ours == theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True) if None not in (ours, theirs))

    def __str__(self) -> str:
        floor = None if self.min_in_sync_replicas is None else f"{self.min_in_sync_replicas} at least"
        said = (word for word in (floor, self.flush_mode, self.release_level) if word is not None)
        return ", ".join((self.mode, f"{self.replicas_expected} slaves", f"{self.in_sync_replicas} copies", *said))


@dataclass(frozen=True, slots=True)
class Standing:
    """What one replica says of itself. `node_id` is its configured id, `wire_id` the one that it has, or gives up, on the wire.

    `granted` is the newest epoch that a role change or a master told it of, 0 for none; a slave says by `granted_to` which node has it, as
    far as it knows. `stepped_down_at` is where its log ended when it
    gave up its place to `successor`, None when it never did or has led again since. `unread_bytes` are damaged here and may hold the newest
    messages of queues; a node knows it of itself only, and says 0 of others. `is_filling`: it began on an empty disk and has not caught up
    yet, so it may lack what the disk before it acknowledged; `filled_in`: the newest epoch that it knew when it last had, 0: never.
    `seeks_place`: it is told to lead, and has not been refused; None: an older
    node, which does not say. `hands_over`: a master that decides whether it gives its place up, or has and is not back yet. Who has
    says what it knew then by `witnessed` and `known`, as `SteppedDown` does.
    """

    node: str
    node_id: int
    wire_id: int
    replica_uuid: str
    stance: Stance
    lineage: Lineage
    end: PhysicalOffset
    confirmed: PhysicalOffset
    granted: Epoch
    stepped_down_at: PhysicalOffset | None
    rules: GroupRules
    topics: DataVersion
    degraded: Degraded = ()
    """What it knows of ranges that fewer copies confirmed than asked."""
    unread_bytes: int = 0
    successor: str = ""
    granted_to: int | None = None
    is_filling: bool = False
    filled_in: Epoch = NO_EPOCH
    seeks_place: bool | None = False
    hands_over: bool = False
    witnessed: Epoch = NO_EPOCH
    known: tuple[Opening, ...] = ()
    holds: SlaveHolds = ()
    """For which slaves but itself its master keeps its log, as it was told last."""

    @property
    def newest(self) -> Opening:
        """The newest epoch of its log."""
        return Opening(newest_epoch(self.lineage), newest_opener(self.lineage))

    @property
    def claim(self) -> Opening:
        """The newest epoch that it knows to be granted or opened."""
        if self.granted <= self.newest.epoch:
            return self.newest
        return Opening(self.granted, self.granted_to if self.stance is Stance.FOLLOWING else self.node_id)

    @property
    def only_follows(self) -> bool:
        """Whether it is a slave that says that it is not told to lead."""
        return self.stance is Stance.FOLLOWING and self.seeks_place is False

    @property
    def rank(self) -> Rank:
        """That of its log."""
        return rank(self.lineage, self.end)


@dataclass(frozen=True, slots=True)
class StepDownOrder:
    """A slave asks its master for its place. `wire_id` is the broker id that it gives up for it; `topics` the version that it holds.

    The master goes on to lead when it cannot confirm all that it wrote, on that slave too, within `timeout_s`. `clients` is where clients
    reach the slave, "" where that is unknown. `validate_only`: it is only asked whether it would be refused at once, and leads on.
    """

    successor: str
    replica_uuid: str
    wire_id: int
    topics: DataVersion
    timeout_s: float
    clients: str = ""
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class SteppedDown:
    """The master never leads again unless it is promoted. Its log ends at `end`; `in_sync` names the slaves that were in sync.

    `degraded` is all that it knows of ranges that fewer copies confirmed than asked: what it told last may not have come yet. Of what was
    confirmed in epochs up to `witnessed` it knew all, and in those up to each of `known` that its opener opened.
    """

    end: PhysicalOffset
    in_sync: tuple[str, ...]
    degraded: Degraded = ()
    witnessed: Epoch = NO_EPOCH
    known: tuple[Opening, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownBefore:
    """What a replica that is told of an epoch knew before: the newest one, and what it does."""

    stance: Stance
    newest: Opening
