"""The words of an audit: what was surveyed, what is compared, what was found. Values only; tasks hand them to each other."""

from dataclasses import dataclass
from enum import IntFlag, StrEnum

from dittomq.client.replica_reader import NodeAddress
from dittomq.copies import ReplicaDescription


class Verdict(StrEnum):
    """What an audit says of a group or of a run."""

    PASS = "PASS"
    DIFFERS = "DIFFERS"
    INCOMPLETE = "INCOMPLETE"
    DIFFERS_AND_INCOMPLETE = "DIFFERS, INCOMPLETE"


class AuditExit(IntFlag):
    """Bits of the exit status; 0 is a pass. USAGE and CRASH are never a verdict."""

    DIVERGED = 1
    DAMAGED = 2
    INCOMPLETE = 16
    USAGE = 64
    CRASH = 128


class DamageKind(StrEnum):
    """What is wrong with the bytes of a copy; the class name in the report."""

    CORRUPT_HEADER = "corrupt-header"
    CORRUPT_BODY = "corrupt-body"
    CORRUPT_PROPERTIES = "corrupt-properties"
    CORRUPT_MARK = "corrupt-mark"
    GAP_ZERO = "gap-zero"
    MISSING_TAIL = "missing-tail"
    DIVERGED = "diverged"
    UNCLASSIFIED = "unclassified"

    @property
    def words(self) -> str:
        """The same in plain words."""
        return _WORDS[self]


_WORDS = {
    DamageKind.CORRUPT_HEADER: "damaged header",
    DamageKind.CORRUPT_BODY: "damaged body",
    DamageKind.CORRUPT_PROPERTIES: "damaged topic or properties",
    DamageKind.CORRUPT_MARK: "damaged end-of-file mark",
    DamageKind.GAP_ZERO: "zeros in place of data",
    DamageKind.MISSING_TAIL: "zeros from here to the end: the last writes are missing",
    DamageKind.DIVERGED: "another whole message in its place: the copies were written by different histories",
    DamageKind.UNCLASSIFIED: "different bytes outside any record that could be read",
}


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A registered node. `held` is None when it could not be asked, and `problem` says why."""

    address: NodeAddress
    held: ReplicaDescription | None
    problem: str = ""

    @property
    def node(self) -> str:
        return self.address.name


@dataclass(frozen=True, slots=True)
class GroupSurvey:
    """A broker group as it was found. `slaves_expected` is None when a node that was read did not say."""

    broker: str
    cluster: str
    nodes: tuple[Surveyed, ...]
    slaves_expected: int | None


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes [start, end) of a group's log, inside the segment [segment_start, segment_end)."""

    broker: str
    start: int
    end: int
    segment_start: int
    segment_end: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is compared is [low, cut). Records from `sealed_from` on carry the record checksum, except in the `foreign` ranges."""

    low: int
    cut: int
    sealed_from: int
    foreign: tuple[tuple[int, int], ...] = ()

    def is_sealed(self, at: int) -> bool:
        """Whether a record that begins here carries the record checksum."""
        return at >= self.sealed_from and not self.foreign_between(at, at + 1)

    def foreign_between(self, start: int, end: int) -> bool:
        """Whether RocketMQ appended any of these bytes behind ours."""
        return any(start < stop and begin < end for begin, stop in self.foreign)


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Bytes that were not compared on `node`, and why. `normal`: nothing is wrong with that."""

    node: str
    size: int
    why: str
    normal: bool


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What is compared in one group. The first copy is also read record by record.

    `frontier` is the highest confirmed end that any copy knows; `problems` make the audit of the group incomplete.
    """

    broker: str
    cluster: str
    copies: tuple[Surveyed, ...]
    bounds: Bounds
    frontier: int
    slices: tuple[Slice, ...]
    not_compared: tuple[NotCompared, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf whose digests differ between copies."""

    slice: Slice
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Consecutive records of one queue in a slice: queue offsets [first, next) without a gap."""

    topic: str
    queue: int
    first: int
    next: int
    position: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes [start, end) of one copy that are no whole, valid records, or break the order of their queue."""

    node: str
    start: int
    end: int
    problem: str


@dataclass(frozen=True, slots=True)
class Records:
    """What reading a slice record by record proved on `node`. Records that start in the slice are its own.

    `first` is where the first one starts and `next` where the last one ends; both None when there is none.
    `rehashed` counts bytes that the auditor hashed itself; `rehash_equal` says that the node had given the same digest.
    """

    node: str
    records: int
    first: int | None
    next: int | None
    damaged: tuple[Damage, ...]
    runs: tuple[QueueRun, ...]
    rehashed: int
    rehash_equal: bool


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What became of one slice. `digested` names the copies whose digests were compared; `compared`: these are all, and several.

    `unreadable` holds (node, why) of every copy that could not be digested or read.
    """

    slice: Slice
    digested: tuple[str, ...]
    compared: bool
    leaves: tuple[Leaf, ...]
    unreadable: tuple[tuple[str, str], ...]
    records: Records | None


@dataclass(frozen=True, slots=True)
class MessageName:
    """The message that a finding is about."""

    topic: str
    queue: int
    queue_offset: int
    keys: tuple[str, ...]
    store_ms: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes of one copy around the first difference; `data` begins at `start`."""

    node: str
    start: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finding:
    """Wrong bytes [first, end) of one copy, within the records [begin, reach).

    `node` is empty when no rule tells which copy is wrong. `differing` counts the bytes that are not equal, `messages` the
    records that they touch; `whole_on` names the copies that are believed.
    """

    broker: str
    node: str
    first: int
    end: int
    begin: int
    reach: int
    differing: int
    kind: DamageKind
    message: MessageName | None
    messages: int
    blame: str
    whole_on: tuple[str, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class LeafResult:
    """What reading a differing leaf raw, twice, brought. `transient`: it was equal on all its copies when it was read.

    `unreadable` says why some copy could not be read; empty when all could.
    """

    leaf: Leaf
    findings: tuple[Finding, ...]
    ignored: int
    transient: bool
    unreadable: str


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """Everything an audit found out about one group.

    `compared` counts bytes whose digests came from every copy; `differing` are leaves that were not equal when read again,
    `unexplained` those of them that were too many to be read raw. `records_node` is empty when no copy was read record by record.
    """

    plan: GroupPlan
    compared: int
    differing: tuple[Leaf, ...]
    unexplained: int
    findings: tuple[Finding, ...]
    damaged: tuple[Damage, ...]
    records: int
    records_node: str
    rehashed: int
    queues: int
    topics: int
    ignored: int
    transients: int
    not_compared: tuple[NotCompared, ...]
    problems: tuple[str, ...]

    @property
    def total(self) -> int:
        """Confirmed bytes that every copy should have been compared in."""
        return max(0, self.plan.frontier - min((copy.held.min_offset for copy in self.plan.copies if copy.held), default=0))

    @property
    def verdict(self) -> Verdict:
        wrong = bool(self.findings or self.unexplained or self.damaged)
        if wrong and self.problems:
            return Verdict.DIFFERS_AND_INCOMPLETE
        if wrong:
            return Verdict.DIFFERS
        return Verdict.INCOMPLETE if self.problems else Verdict.PASS


@dataclass(frozen=True, slots=True)
class RunResult:
    """One audit. Times in milliseconds since 1970. `unseen` are groups that earlier audits saw and this one did not."""

    run: str
    cluster: str
    started_ms: int
    ended_ms: int
    cut_ms: int
    salt: int
    groups: tuple[GroupAudit, ...]
    problems: tuple[str, ...]
    unseen: tuple[str, ...] = ()

    @property
    def exit_status(self) -> AuditExit:
        """The bits that a shell sees."""
        status = AuditExit(0)
        if any(group.findings or group.unexplained for group in self.groups):
            status |= AuditExit.DIVERGED
        if any(group.damaged for group in self.groups):
            status |= AuditExit.DAMAGED
        if self.problems or any(group.problems for group in self.groups):
            status |= AuditExit.INCOMPLETE
        return status

    @property
    def verdict(self) -> Verdict:
        wrong = self.exit_status & (AuditExit.DIVERGED | AuditExit.DAMAGED)
        if wrong and AuditExit.INCOMPLETE in self.exit_status:
            return Verdict.DIFFERS_AND_INCOMPLETE
        if wrong:
            return Verdict.DIFFERS
        return Verdict.INCOMPLETE if AuditExit.INCOMPLETE in self.exit_status else Verdict.PASS


@dataclass(frozen=True, slots=True)
class SliceTask:
    """Digest one slice on all copies; read it record by record on `reference`, if there is one."""

    slice: Slice
    copies: tuple[NodeAddress, ...]
    reference: NodeAddress | None
    bounds: Bounds
    salt: int


@dataclass(frozen=True, slots=True)
class LeafTask:
    """Read one differing leaf raw from the copies whose digests differ in it, twice, `pause_s` apart."""

    leaf: Leaf
    copies: tuple[NodeAddress, ...]
    bounds: Bounds
    backoff_s: float
