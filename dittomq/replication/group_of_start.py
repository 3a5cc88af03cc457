"""The group of a starting master: how it is configured, and what its other replicas do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dittomq.replication.events import Hello
from dittomq.routes import Claim, Opening

_MOST_HEARD: Final = 64


@dataclass(frozen=True, slots=True)
class LeadershipRules:
    """Settings of the group. `replicas_expected` counts slaves, `in_sync_replicas` copies with the master.

    `witnesses`: what none of so many slaves has was never confirmed; 0: that cannot be said of this group.
    """

    replicas_expected: int
    in_sync_replicas: int
    sync_flush: bool
    recover_wait_s: float
    witnesses: int = 0


@dataclass(frozen=True, slots=True)
class Others:
    """What the replicas that were asked do: who leads, in which epoch, and, by configured id, who is somebody's slave.

    `known`: the newest epoch that each of these knows of, by node name. `recovering`: who is to lead and does not yet, with why, by
    configured id.
    """

    leading: tuple[Opening, ...] = ()
    following: frozenset[int] = frozenset()
    known: Mapping[str, Opening] = field(default_factory=dict)
    recovering: Mapping[int, Claim] = field(default_factory=dict)


def forget_least(heard: dict[str, Hello], lacks_some_of: Callable[[Hello], bool]) -> None:
    """Of very many, one: who brought nothing that is missing here, else who knew least to be confirmed, of equals who came first."""
    if len(heard) > _MOST_HEARD:
        del heard[min(heard, key=lambda uuid: (lacks_some_of(heard[uuid]), heard[uuid].confirmed))]
