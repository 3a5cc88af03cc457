"""Groups that confirm, as tests see them: masters of epoch 1 with slaves that have streams. Two copies asked for, flushed on both."""

from dataclasses import replace

from dittomq.doors.coordination import Versioned
from dittomq.group_record import GroupRecord, Member, ReplicaId, in_order
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.membership import MemberChange, Membership
from dittomq.replication.progress import ConfirmRules

RULES = ConfirmRules(
    copies=2,
    level_copies=2,
    min_in_sync_replicas=1,
    replicas_expected=2,
    sync_flush=True,
    release_flushed=True,
    max_gap_bytes=1_000_000,
    max_lag_s=15.0,
    write_deadline_s=3.0,
)
SMALL_GAP = replace(RULES, max_gap_bytes=1_000)
ASYNC = replace(RULES, copies=1)
MASTER = "a/0"


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def replica_of(node: str, incarnation: int = 1) -> ReplicaId:
    return ReplicaId(f"uuid-{node}", str(incarnation))


def member_of(node: str, incarnation: int = 1) -> Member:
    return Member(node, replica_of(node, incarnation), f"{node.replace('/', '-')}:10912")


def record_of(*nodes: str, copies: int = 2, revision: int = 1) -> GroupRecord:
    """A record of epoch 1 with the master and these members."""
    members = in_order(member_of(node) for node in (MASTER, *nodes))
    return GroupRecord("birth", Epoch(1), revision, replica_of(MASTER), members, copies, write=f"write {revision}")


class ConfirmingGroup:
    """A master's confirmed offset and members. Its log is empty, or `end` long; slaves of `streaming` have streams at once."""

    def __init__(
        self,
        rules: ConfirmRules = SMALL_GAP,
        *,
        record: GroupRecord | None = None,
        streaming: tuple[str, ...] = (),
        end: int = 0,
        confirmed: int = 0,
        silent: tuple[str, ...] = (),
    ) -> None:
        self.record = record_of("a/1", copies=rules.copies) if record is None else record
        self.confirmed = ConfirmedOffset(
            rules, own=replica_of(MASTER), node=MASTER, record=self.record, end=at(end), confirmed=at(confirmed), now=0.0
        )
        self.membership = Membership(rules, self.confirmed, Versioned(self.record, "v1"), silent=silent, now=0.0)
        for node in streaming:
            self.stream(node)

    def master(self, written: int, flushed: int | None = None, now: float = 0.0) -> None:
        self.confirmed.master_at(written=at(written), flushed=at(written if flushed is None else flushed), now=now)

    def stream(self, node: str, *, start: int = 0, incarnation: int = 1, now: float = 0.0) -> None:
        member = member_of(node, incarnation)
        self.confirmed.stream_begins(node, member.replica, at(start), (), address=member.address, now=now)

    def slave(
        self, node: str, received: int, flushed: int | None = None, *, adopted: bool = True, incarnation: int = 1, now: float = 0.0
    ) -> None:
        """An ack, on a stream that begins with the first one."""
        found = self.confirmed.progress.of_node(node)
        if found is None or not found.streams or found.replica != replica_of(node, incarnation):
            self.stream(node, incarnation=incarnation, now=now)
        self.confirmed.slave_at(
            node,
            replica_of(node, incarnation),
            received=at(received),
            flushed=at(received if flushed is None else flushed),
            adopted=adopted,
            now=now,
        )


ALONE = record_of()


def caught_up(*names: str, record: tuple[str, ...] = (), end: int = 100) -> ConfirmingGroup:
    """A master of three nodes whose slaves `names` stream, and have acknowledged everything; `record` are members."""
    group = ConfirmingGroup(record=record_of(*record))
    for name in names:
        group.slave(name, 0)
    group.master(end)
    for name in names:
        group.slave(name, end)
    return group


def decided(group: ConfirmingGroup, now: float, write: str = "w") -> MemberChange | None:
    """What is to be written, after a tick."""
    group.confirmed.tick(now)
    return group.membership.decide(now, write=write)


def must(group: ConfirmingGroup, now: float) -> MemberChange:
    """The same, where something is."""
    change = decided(group, now)
    assert change is not None
    return change


def nodes(change: MemberChange | None) -> list[str]:
    """Members of the record that is to be written, other than the master."""
    return [] if change is None else [member.node for member in change.record.members if member.node != MASTER]
