"""What nameservers say of nodes, held against which of them live and reach them."""

from collections.abc import Collection, Iterator

from tests.simulation.shapes import Shape, machine_of, name_of
from tests.simulation.world import World

_SCAN_S = 2.0
_REGISTERED_S = 30.0  # a start, and a period of registration


class NamedNodes:
    """Judges one run with one nameserver."""

    def __init__(self, world: World, shape: Shape) -> None:
        self._world = world
        self._shape = shape
        self._ran_at = dict.fromkeys(shape.brokers, 0.0)  # last seen running
        self._reached_since = dict.fromkeys(shape.brokers, 0.0)

    def look(self) -> None:
        """See who lives; to be called twice a second."""
        now = self._world.loop.time()
        [nameserver] = self._shape.name_machines
        listens = self._lives(nameserver)
        for name in self._shape.brokers:
            if self._world.nodes[name].running:
                self._ran_at[name] = now
            if not (
                listens
                and self._lives(name)
                and self._world.network.is_whole(name, nameserver)
                and self._world.network.is_whole(nameserver, name)
            ):
                self._reached_since[name] = now

    def listed(self, asked_at: float, nodes: Collection[str]) -> Iterator[str]:
        """A client that asked at some time was told of these nodes."""
        [nameserver] = self._shape.name_machines
        if self._world.network.machine(nameserver).freezes:  # what it slept through is no silence of a node
            return
        silent_s = self._shape.names.broker_expiry_ms / 1_000 + _SCAN_S
        for node in nodes:
            machine = machine_of(node)
            ran_at = max(self._ran_at[machine], self._world.nodes[machine].started_at)  # it may have lived between two looks
            if asked_at - ran_at > silent_s:
                yield f"{node} is named at {asked_at:.1f} s, and does not run since {ran_at:.1f} s"
        for name in self._shape.brokers:
            since = max(self._reached_since[name], self._world.nodes[name].started_at)  # one that changes its role starts too
            if name_of(name) not in nodes and asked_at - since > _REGISTERED_S:
                yield f"{name_of(name)} is not named at {asked_at:.1f} s, and reaches {nameserver} since {since:.1f} s"

    def _lives(self, name: str) -> bool:
        node = self._world.nodes[name]
        return node.running and node.faults.slowness == 1.0 and not self._world.network.machine(name).still
