"""What a small world is made of."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dittomq.group_record import GroupRecord, ReplicaId

NODES: Final = ("a/0", "a/1", "a/2")
LETTERS: Final = "ABC"
BIRTH: Final = "birth"
NONE: Final = -1
FOLLOWS, STANDS, LEADS = 0, 1, 2
WHOLE, LOST_DISK, LOST_TAIL = 0, 1, 2

LIVES: Final = (("u", "i"), ("v", "j"), ("u", "k"))
LIFE_OF: Final = {f"{incarnation}{at}": life for life, (_, incarnation) in enumerate(LIVES) for at in range(3)}
_IDS: Final = [[ReplicaId(f"{uuid}{at}", f"{incarnation}{at}") for uuid, incarnation in LIVES] for at in range(3)]


@dataclass(frozen=True, slots=True)
class SmallBounds:
    """How far a world goes. Epochs count from 1. `losses`: so many replicas lose their disk; with `tails` it may be the log's end alone.

    `partial`: a candidate may stop while it fetches a tail. `parts`: streams may end, and begin again. `unsynced`: slaves may
    hold a byte before their master has synced it, and a restart takes it from the master. `members`: so many of the three replicas are
    members at first. `begun`: the steps that were taken already, by the words that they begin with.
    """

    copies: int
    epochs: int
    appends: int
    changes: int
    losses: int = 0
    partial: bool = False
    tails: bool = False
    parts: bool = False
    unsynced: bool = False
    members: int = 3
    begun: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"copies={self.copies} epochs={self.epochs} appends={self.appends} changes={self.changes}"]
        words += [f"members={self.members}"] * (self.members < 3) + [f"losses={self.losses}"] * (self.losses > 0)
        return " ".join(words + ["tails"] * self.tails + ["parts"] * self.parts + ["unsynced"] * self.unsynced + ["partial"] * self.partial)


class SmallReplica(NamedTuple):
    """One replica. `log` has one byte for each appended message: the epoch of the master that wrote it.

    `machine` is its election or its leader, by number, in epoch `epoch`; a master's log ended at `start` when its epoch began. `stream` is
    the epoch of the master that it follows. `ack` is on its way: epoch * 16 + log end + 1. `answer`: the store has written what it sent.
    `unsynced`: so many bytes at the end of its log would be lost with the process.
    """

    log: bytes = b""
    adopted: int = 1
    promised: int = 1
    life: int = WHOLE
    mode: int = FOLLOWS
    epoch: int = 0
    start: int = 0
    machine: int = NONE
    stream: int = 0
    ack: int = 0
    answer: int = 0
    unsynced: int = 0

    def follows(self, **changes: Any) -> "SmallReplica":
        """It stands no more, and leads no more."""
        return self._replace(**{"mode": FOLLOWS, "epoch": 0, "start": 0, "machine": NONE, "answer": 0, "unsynced": 0, **changes})


class Effect(NamedTuple):
    """What a step changes: the replica, another one, the writes on their way, the budgets, and epochs that were opened."""

    words: str
    own: int
    other: int = NONE
    write: int = NONE
    appends: int = 0
    changes: int = 0
    losses: int = 0
    opened: int = 0


State = tuple[int, ...]
"""A whole world, by numbers: three replicas, the record in the store, writes on their way, the bytes ever confirmed, a bit for each epoch
that was opened, and how many messages were appended, member changes sent, and replicas lost.
"""
RECORD: Final = 3


class ReplicaFacts(NamedTuple):
    """What is asked of a replica all the time. `leads` and `streams` have a bit for each epoch. `standing`: what a candidate sees of it."""

    mode: int
    signature: int
    standing: int
    leads: int
    streams: int
    confirmed: int


def replica_id(at: int, life: int) -> ReplicaId:
    """A replica's id in one of its lives."""
    return _IDS[at][life]


def common_length(ours: bytes, theirs: bytes) -> int:
    """How many bytes two logs have in common."""
    return next((at for at, (one, two) in enumerate(zip(ours, theirs, strict=False)) if one != two), min(len(ours), len(theirs)))


def letters_of(record: GroupRecord) -> str:
    return "".join(LETTERS[NODES.index(member.node)] for member in record.members)
