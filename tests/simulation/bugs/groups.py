"""Bugs in what a group keeps for a node, in what is said of nodes, and in who takes the place of whom."""

from typing import Any

from dittomq.broker.candidate import Candidate
from services.master.replication_slots import SlotsOfSlaves
from services.nameserver.registry import Registry
from tests.simulation.bugs.patches import Patches
from tests.simulation.cluster import Cluster


def nothing_is_held_for_slaves(patches: Patches, _: Cluster) -> None:
    """Retention asks nobody."""
    patches.put(SlotsOfSlaves, "floors", lambda _: lambda *_: [])


def nodes_never_expire(patches: Patches, _: Cluster) -> None:
    """A nameserver names nodes for ever."""
    patches.put(Registry, "expire", lambda _: lambda *_: [])


def nodes_are_forgotten_for_good(patches: Patches, _: Cluster) -> None:
    """Whoever has expired once is not heard again: its heartbeats are answered, and nothing is entered."""

    def make(honest: Any) -> Any:
        def expire(registry: Registry, now: Any) -> list[str]:
            gone: list[str] = honest(registry, now)
            dead.update(gone)
            return gone

        return expire

    def listing(honest: Any) -> Any:
        def page(registry: Registry, *asked: Any) -> Any:
            found = honest(registry, *asked)
            return type(found)(tuple(each for each in found.nodes if each.name not in dead), found.next_page_token)

        return page

    dead: set[str] = set()
    patches.put(Registry, "expire", make)
    patches.put(Registry, "page", listing)


def nobody_stands_for_election(patches: Patches, _: Cluster) -> None:
    """A slave waits for its master for ever."""
    patches.put(Candidate, "_master_is_silent", lambda honest: lambda self, record: record is None and honest(self, record))
