"""Strikes a script at one call, ends the process there, and has the rest judged."""

import random
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from dittomq.errors import StorageFailure, StoreOpenFailed
from tests.crash.actor import Actor
from tests.crash.judge import Judge
from tests.crash.scripts import SCRIPTS
from tests.support.failing_storage import Crashed, Harm
from tests.support.stores import Machine


class Loss(StrEnum):
    """What is lost with the process."""

    KILL = "kill"
    """Nothing that the page cache has; of what a failed sync marked clean there, what chance takes."""
    FORGET = "forget"
    """All that a failed sync marked clean."""
    POWER = "power"
    """Of what was not synced, what chance takes: sectors, sizes, names."""
    WORST = "worst"
    """All that was not synced."""


KINDS = {
    Harm.CRASH: (Loss.KILL, Loss.POWER, Loss.WORST),
    Harm.ERROR: (Loss.KILL, Loss.FORGET, Loss.POWER, Loss.WORST),
    Harm.DEAD: (Loss.KILL, Loss.FORGET, Loss.POWER),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One run of the sweep; its text names it for good."""

    script: str
    harm: Harm
    loss: Loss
    seed: int
    call: int

    def __str__(self) -> str:
        return f"{self.script}:{self.harm}:{self.loss}:{self.seed}:{self.call}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The point of that name; ValueError for any other text."""
        script, harm, loss, seed, call = text.split(":")
        if script not in SCRIPTS:
            raise ValueError(f"{script} is no script")
        return cls(script, Harm(harm), Loss(loss), int(seed), int(call))


@dataclass(frozen=True, slots=True)
class Verdict:
    """`struck` names the call; empty when the script ended before it. `problem` is empty when nothing is wrong."""

    struck: str
    problem: str
    transcript: str


def calls_of(script: str, seed: int) -> int:
    """How many calls of the script change the disk."""
    return _act(Actor(Machine(random.Random(seed))), Point(script, Harm.CRASH, Loss.KILL, seed, 1 << 30))


def strike(point: Point) -> Verdict:
    """Run the script up to the point, lose what is to be lost, restart and judge."""
    actor, struck = Actor(Machine(random.Random(point.seed))), ""
    try:
        _act(actor, point)
        struck = actor.door.struck
        if point.loss in {Loss.KILL, Loss.FORGET}:
            actor.is_killed(all_unsynced=point.loss is Loss.FORGET)
        else:
            actor.loses_power(all_unsynced=point.loss is Loss.WORST)
        Judge(actor.machine, actor.promises, random.Random(f"{point}")).judge()
    except Exception as error:  # noqa: BLE001 - whatever is raised is a finding
        return Verdict(struck or actor.door.struck, f"{type(error).__name__}: {error}", traceback.format_exc())
    return Verdict(struck, "", "")


def points(script: str, seed: int, *, step: int = 1) -> Iterator[Point]:
    """Every call of the script that changes the disk, and its end, with every harm and loss; of these runs every `step`-th."""
    runs = [(harm, loss, call) for call in range(1, calls_of(script, seed) + 2) for harm, losses in KINDS.items() for loss in losses]
    for harm, loss, call in runs[seed % step :: step]:
        yield Point(script, harm, loss, seed, call)


def _act(actor: Actor, point: Point) -> int:
    """Act until the script or the process ends; how many calls of the disk's that took."""
    script = SCRIPTS[point.script]
    script.before(actor)
    calls = actor.door.calls
    actor.door.strike_in(point.call, point.harm)
    try:
        script.deeds(actor)
    except Crashed:
        pass
    except (StorageFailure, StoreOpenFailed):
        actor.broke()
    return actor.door.calls - calls
