"""What goes wrong in a run, and what its operator does: a plan made from a seed alone. Each has only some kinds, so that runs differ."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum


class FaultKind(Enum):
    """A kind of fault."""

    KILL = "kill"
    POWER_LOSS = "power loss"
    POWER_LOSS_OF_ALL = "power loss of all"
    CRASH_INSIDE = "crash inside a disk operation"
    CRASH_WHILE_STARTING = "crash again while starting"
    CRASH_WHEN_TOLD = "crash, slow, at an acknowledgement"
    LEFT_BEHIND = "power loss before a slow sync ends, then cut off from the group"
    CRASH_IN_A_CUT = "crash inside the next cut"
    RESTART = "clean restart"
    DISK_LOSS = "disk loss"
    FAILED_SYNC = "failed sync"
    SLOW_DISK = "slow disk"
    FULL_DISK = "full disk"
    CUT = "cut"
    SILENCE_ONE_WAY = "silence one way"
    SILENCE = "silence both ways"
    SLOW_LINK = "slow link"
    CLIENT_CRASH = "client crash"
    CLOCK_JUMP = "clock jump"
    SWITCHOVER = "switchover"
    TWO_SWITCHOVERS = "two switchovers at once"
    MASTER_DOWN = "the master is down for longer than its slaves wait"
    PARTED = "the master is cut off from its slaves or the coordination store"
    OPERATOR_FAILOVER = "an operator lets another node lead"
    PAUSED = "failover is paused for a while"
    STORE_DOWN = "the coordination store is down"
    LEFT_FAR_BEHIND = "away for longer than its master holds the log"
    ROT = "a bit flips on a disk, or a page of it is not given"
    REMOVED = "somebody removes a file of the log"
    STALL = "slow disks everywhere, then power loss of all"
    HANG = "a disk that hangs for seconds"
    FREEZE = "a process that stands still"
    CRASH_IN_A_FRAME = "the master crashes when its slaves have got the first part of a frame"

    @property
    def word(self) -> str:
        """How a command line says it."""
        return self.name.lower().replace("_", "-")


OF_LEADERSHIP = (
    FaultKind.SWITCHOVER,
    FaultKind.TWO_SWITCHOVERS,
    FaultKind.MASTER_DOWN,
    FaultKind.PARTED,
    FaultKind.OPERATOR_FAILOVER,
    FaultKind.PAUSED,
    FaultKind.STORE_DOWN,
)
_SPECIAL = (
    *OF_LEADERSHIP,
    FaultKind.LEFT_FAR_BEHIND,
    FaultKind.ROT,
    FaultKind.REMOVED,
    FaultKind.STALL,
    FaultKind.HANG,
    FaultKind.FREEZE,
    FaultKind.CRASH_IN_A_FRAME,
)
_USUAL_KINDS = tuple(kind for kind in FaultKind if kind not in _SPECIAL)
_RARE = {FaultKind.DISK_LOSS: 0.2, FaultKind.FAILED_SYNC: 0.25, FaultKind.POWER_LOSS_OF_ALL: 0.35}
_USUAL = 0.5
_MANY = 12
_FORMED_S = 3.0
_BRIEF_S = 8.0
_ONCE = (FaultKind.DISK_LOSS,)
_EXCLUDE_DISK_LOSS = (FaultKind.ROT, FaultKind.REMOVED)  # the disk may hold the only copy that is whole
_EXCLUDE_REMOVED = (FaultKind.ROT,)
_AWAY = (FaultKind.KILL, FaultKind.POWER_LOSS, FaultKind.POWER_LOSS_OF_ALL, FaultKind.MASTER_DOWN, FaultKind.STORE_DOWN)
_OF_LINKS = (FaultKind.CUT, FaultKind.SILENCE, FaultKind.SILENCE_ONE_WAY, FaultKind.SLOW_LINK)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `other`: the far end of a link, or "". `lasts_s`: until it is taken back.

    `amount`: operations, factor, milliseconds, or KiB that are left; in a cut an odd number of operations ends where a file of the log has
    become shorter, if that comes first. `power_fails`: a crash of no stated kind loses power too.
    Of rot: 1 a bit, 2 a page.
    Of a master that is cut off: `power_fails` when clients do not reach it either; from what it is cut off `amount` says bit by bit.
    """

    at: float
    kind: FaultKind
    machine: str
    other: str
    lasts_s: float
    amount: int
    power_fails: bool

    def __str__(self) -> str:
        parts = [f"{self.at:7.2f} s  {self.kind.value:<30} {self.machine}"]
        if self.other:
            parts.append(f"-> {self.other}")
        parts.append(f"for {self.lasts_s:.2f} s, amount {self.amount}{', power' if self.power_fails else ''}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Machines:
    """Who can be hit."""

    brokers: tuple[str, ...]
    nameserver: str
    clients: tuple[str, ...]


def plan(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """Faults in the order of their times, of all kinds that need neither an operator nor a log that is dropped."""
    kinds = [kind for kind in _USUAL_KINDS if chance.random() < _RARE.get(kind, _USUAL)] or [FaultKind.KILL]
    faults = []
    for _ in range(chance.randint(3, 14)):
        kind = chance.choice(kinds)
        faults.append(_fault(kind, chance, machines, duration_s))
        if kind in _ONCE:
            kinds.remove(kind)
            kinds = kinds or [FaultKind.KILL]
    return in_order(faults)


def stressed(chance: random.Random, machines: Machines, duration_s: float, kinds: Sequence[FaultKind]) -> list[Fault]:
    """Many faults of few kinds, in the order of their times."""
    often = [kind for kind in kinds if kind not in _ONCE]
    first = [kind for kind in kinds if kind in _ONCE]
    drawn = [*first, *(chance.choice(often) for _ in range(_MANY - len(first)))]
    faults = [_fault(kind, chance, machines, duration_s) for kind in drawn]
    return in_order(map(_dense, faults) if set(kinds) & set(OF_LEADERSHIP) else faults)


def _dense(fault: Fault) -> Fault:
    """Of many: when the group has formed, and no machine is away for long, for without two of three nothing happens."""
    lasts_s = min(fault.lasts_s, _BRIEF_S) if fault.kind in _AWAY else fault.lasts_s
    return replace(fault, at=max(fault.at, _FORMED_S), lasts_s=lasts_s)


def any_kinds(chance: random.Random) -> tuple[FaultKind, ...]:
    """Two or three kinds that may come together."""
    drawn = chance.sample(list(FaultKind), chance.choice((2, 3)))
    if any(kind in _EXCLUDE_DISK_LOSS for kind in drawn):
        drawn = [kind for kind in drawn if kind is not FaultKind.DISK_LOSS]
    if any(kind in _EXCLUDE_REMOVED for kind in drawn):
        drawn = [kind for kind in drawn if kind is not FaultKind.REMOVED]
    return tuple(drawn)


def in_order(faults: Iterable[Fault]) -> list[Fault]:
    """By their times."""
    return sorted(faults, key=lambda fault: fault.at)


def changes(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """What makes another node lead, or keeps it from leading: `machine` is wanted, or another when it leads already."""
    kinds = [kind for kind in OF_LEADERSHIP if chance.random() < 0.6] or [FaultKind.MASTER_DOWN]
    return [_fault(chance.choice(kinds), chance, machines, duration_s) for _ in range(chance.randint(1, 4))]


def absences(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """A slave that is away for long, and dies after so many operations (`amount`) of the copying that follows."""
    at, lasts_s = chance.uniform(2.0, 10.0), chance.uniform(0.35, 0.55) * duration_s
    away = Fault(
        at, FaultKind.LEFT_FAR_BEHIND, chance.choice(machines.brokers[1:]), "", lasts_s, chance.randint(1, 60), chance.random() < 0.5
    )
    return [away]


def rots(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """Bits that flip and pages that are not given, all of them on one disk: no record rots on two."""
    machine = chance.choice(machines.brokers)
    times = sorted(chance.uniform(8.0, duration_s) for _ in range(chance.randint(1, 4)))
    return [Fault(at, FaultKind.ROT, machine, "", 0.0, chance.randint(1, 2), power_fails=False) for at in times]


def removals(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """Files of the logs of slaves that somebody removes while they run."""
    return [_fault(FaultKind.REMOVED, chance, machines, duration_s) for _ in range(chance.randint(1, 3))]


def stalls(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """Disks that stall together, and a power loss that catches all of them at it; or one that hangs."""
    return [_fault(chance.choice((FaultKind.STALL, FaultKind.HANG)), chance, machines, duration_s) for _ in range(chance.randint(1, 2))]


def crashes_in_frames(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """Masters that go down in the middle of what they send, for longer than their slaves wait."""
    found = [_fault(FaultKind.CRASH_IN_A_FRAME, chance, machines, duration_s) for _ in range(chance.randint(1, 2))]
    return [replace(fault, at=max(fault.at, _FORMED_S), lasts_s=_BRIEF_S * chance.uniform(0.8, 1.6)) for fault in found]


def freezes(chance: random.Random, machines: Machines, duration_s: float) -> list[Fault]:
    """Processes that stand still for a while and go on where they were, the first master first."""
    times = sorted(chance.uniform(2.0, duration_s) for _ in range(chance.randint(1, 3)))
    names = [machines.brokers[0], *(chance.choice((*machines.brokers, machines.nameserver)) for _ in times[1:])]
    long_s = [chance.choice((1.0, 8.0, 25.0)) * chance.uniform(0.5, 1.5) for _ in times]
    return [
        Fault(at, FaultKind.FREEZE, name, "", lasts_s, 1, power_fails=False) for at, name, lasts_s in zip(times, names, long_s, strict=True)
    ]


def _fault(kind: FaultKind, chance: random.Random, machines: Machines, duration_s: float) -> Fault:
    other = ""
    machine = chance.choice(machines.brokers)
    if kind in _OF_LINKS:
        machine, other = chance.sample([*machines.brokers * 2, machines.nameserver, *machines.clients], 2)
        if machine == other:
            other = machines.nameserver
    elif kind is FaultKind.ROT:
        machine = machines.brokers[0]  # no record rots on two disks
    elif kind is FaultKind.REMOVED:
        machine = chance.choice(machines.brokers[1:] or machines.brokers)
    elif kind is FaultKind.STORE_DOWN:
        machine = machines.nameserver
    elif kind is FaultKind.CLIENT_CRASH:
        machine = chance.choice(machines.clients)
    elif kind in (FaultKind.DISK_LOSS, FaultKind.LEFT_BEHIND) and chance.random() < 0.7:
        machine = machines.brokers[0]
    elif kind in (FaultKind.KILL, FaultKind.RESTART) and chance.random() < 0.1:
        machine = machines.nameserver
    amounts = {
        FaultKind.CRASH_INSIDE: chance.choice((3, 30, 300)),
        FaultKind.CRASH_WHILE_STARTING: 120,
        FaultKind.CRASH_IN_A_CUT: 120,
        FaultKind.CRASH_WHEN_TOLD: 400,
        FaultKind.LEFT_BEHIND: 4_000,
        FaultKind.DISK_LOSS: 400,
        FaultKind.STALL: 4_000,
        FaultKind.HANG: 40_000,
        FaultKind.SLOW_DISK: chance.choice((40, 400, 4_000)),
        FaultKind.FULL_DISK: 512,
        FaultKind.SLOW_LINK: 300,
        FaultKind.CLOCK_JUMP: 3_600_000,
        FaultKind.PARTED: 7,
        FaultKind.MASTER_DOWN: 2,
        FaultKind.ROT: 2,
    }
    most = amounts.get(kind, 1)
    amount = chance.randint(-most, most) if kind is FaultKind.CLOCK_JUMP else chance.randint(1, most)
    lasts_s = chance.choice((0.05, 1.0, 8.0, 25.0)) * chance.uniform(0.5, 1.5)
    return Fault(chance.uniform(0, duration_s), kind, machine, other, lasts_s, amount, chance.random() < 0.5)
