"""What a store has said so far, which no stop may take back. Ends are physical offsets in bytes."""

from dataclasses import dataclass, field, replace

from dittomq.epoch_history import EpochHistory
from dittomq.group_record import ReplicaId
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut that was asked for; `log` are the bytes from 0 to where the log ended before."""

    to: int
    log: bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that was closed cleanly beside the store; of `log`, the bytes from 0 on, it holds those from `start` on."""

    start: int
    log: bytes
    epoch_history: EpochHistory
    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Known:
    """What a replica must not forget."""

    birth: str = ""
    adopted: int = 0
    promised: int = 0
    revision: int = 0


@dataclass(slots=True)
class Promises:
    """Facts that were answered, and what is under way: of that, the old or the new is right, and nothing between.

    A `trying` field is None or empty while nothing is under way.
    """

    replica: ReplicaId | None = None
    """None before the store was first opened."""
    known: list[Known] = field(default_factory=lambda: [Known()])
    """What is in force; behind it, what is being written."""
    log: bytes = b""
    """All bytes whose write was answered."""
    trying_bodies: list[bytes] = field(default_factory=list)
    trying_bytes: bytes = b""
    flushed: int = 0
    """Up to here the log survives everything."""
    confirmed: int = 0
    rotten: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that the disk, or the master, had no whole bytes of; what `log` has there can be had elsewhere."""
    epoch_histories: list[EpochHistory] = field(default_factory=lambda: [()])
    """The one in force; behind it, the one that is being written."""
    generation: int = 0
    cutting: Cut | None = None
    cuts: list[Cut] = field(default_factory=list)
    """Finished ones; their tails are kept."""
    begins: list[int] = field(default_factory=lambda: [0])
    """Where the log begins; behind it, where it will when what is under way is done. What was dropped stays in `log`."""
    copy: Copy | None = None
    """What may take the store's place, and does once that is intended."""
    swap_intended: bool = False
    minimums: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of queues whose topic was deleted."""
    trying_deletion: bool = False
    table: Table[TopicConfig] = field(default_factory=Table)
    trying_table: Table[TopicConfig] | None = None
    tables: list[Table[TopicConfig]] = field(default_factory=list)
    """All that were ever saved or tried, for the `.bak`."""
    power_lost: bool = False
    """Since the store was last opened; what was not synced may be gone."""
    disk_failed: bool = False
    """Since the store was last opened; what the page cache showed may be gone."""
    marked_failed: bool = False
    """The store has said on disk that a write or sync failed, and no start has ended since."""
    disk_died: bool = False
    """It did not take even that."""
    tampered: bool = False
    """Since the store was last opened, somebody changed files of ours."""

    def forget_tail(self, to: int) -> None:
        """A cut has been done."""
        self.log = self.log[:to]
        self.flushed, self.confirmed = min(self.flushed, to), min(self.confirmed, to)
        self.generation += 1
        self.cutting = None

    def take_copy(self, copy: Copy) -> None:
        """The copy has taken the store's place."""
        self.log, self.flushed, self.begins = copy.log, len(copy.log), [copy.start]
        self.confirmed, self.epoch_histories = 0, [copy.epoch_history]
        self.generation += 1
        self.minimums.clear()
        self.replica, self.known = copy.replica, [replace(each, adopted=0) for each in self.known]
        self.copy, self.swap_intended = None, False
