"""The group of a starting master: how it is configured, and what its other replicas do."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dittomq.routes import Claim, Opening


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
