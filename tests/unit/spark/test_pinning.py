"""The auditor's side of pins: taken on every copy, renewed while the work goes on, and honest about those that were lost."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import pytest

from dittomq.client.replica_reader import NodeAddress
from dittomq.copies import Pin
from dittomq.errors import DittoError, SessionExpired, Unavailable
from dittomq.offsets import PhysicalOffset
from spark.audit.pinning import LEASE_S, RENEWAL_S, Pinning
from tests.simulation.loop import SimulatedLoop
from tests.support.virtual_time import played_by

P = TypeVar("P")
R = TypeVar("R")
NODES = [NodeAddress("a", number, "test", f"a{number}:10911") for number in range(2)]


class Nodes:
    """Nodes that do what pins ask, at virtual times. `trouble` is raised by calls to a/1 while it is set."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, float]] = []
        self.trouble: DittoError | None = None
        self.holds = True

    async def pin(self, node: NodeAddress, run: str, lease_s: float) -> Pin:
        self._called("pin", node)
        assert (run, lease_s) == ("run", LEASE_S)
        return Pin(node.name, PhysicalOffset(0))

    async def renew(self, node: NodeAddress, pin: Pin, lease_s: float) -> None:
        self._called("renew", node)

    async def unpin(self, node: NodeAddress, pin: Pin) -> bool:
        self._called("unpin", node)
        return self.holds

    def _called(self, what: str, node: NodeAddress) -> None:
        self.calls.append((what, node.name, asyncio.get_running_loop().time()))
        if self.trouble is not None and node.broker_id == 1:
            raise self.trouble


class SlowLane:
    """Work takes so many seconds on it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def call(self, work: Callable[[], R]) -> R:
        await asyncio.sleep(self._seconds)
        return work()

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        raise AssertionError("the audit's work has no steps")


def play(story: Callable[[Nodes, Pinning], Coroutine[Any, Any, None]]) -> None:
    nodes = Nodes()
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story(nodes, Pinning(nodes, "run")))


@played_by(play)
async def test_pins_are_renewed_within_a_quarter_of_their_lease(nodes: Nodes, pinning: Pinning) -> None:
    """While the work goes on."""
    await pinning.take(NODES)
    assert await pinning.during(SlowLane(100.0), lambda: 7) == 7
    await pinning.release()

    assert [(what, at) for what, node, at in nodes.calls if node == "a/1"] == [
        ("pin", 0.0),
        *(("renew", number * RENEWAL_S) for number in (1, 2, 3)),
        ("unpin", 100.0),
    ]
    assert LEASE_S / 4 >= RENEWAL_S
    assert pinning.problems == {}


@played_by(play)
async def test_a_node_that_misses_a_renewal_is_asked_again_and_nothing_is_wrong(nodes: Nodes, pinning: Pinning) -> None:
    await pinning.take(NODES)
    nodes.trouble = Unavailable("a/1", "it was stopped")
    await pinning.during(SlowLane(45.0), lambda: None)
    nodes.trouble = None
    await pinning.during(SlowLane(45.0), lambda: None)
    await pinning.release()

    assert [what for what, node, _ in nodes.calls if node == "a/1"] == ["pin", "renew", "renew", "unpin"]
    assert pinning.problems == {}


@pytest.mark.parametrize("at_the_end", [True, False])
@played_by(play)
async def test_a_pin_that_ended_is_a_problem_of_that_node_alone(nodes: Nodes, pinning: Pinning, /, at_the_end: bool) -> None:
    await pinning.take(NODES[1:])
    nodes.holds = not at_the_end
    nodes.trouble = None if at_the_end else SessionExpired("pin 7 of a/1")
    await pinning.during(SlowLane(45.0), lambda: None)
    await pinning.release()

    [(node, problem)] = pinning.problems.items()
    assert node == NODES[1]
    assert problem.startswith("a/1: its retention was not held back until the end of the run")


@played_by(play)
async def test_a_node_that_grants_no_pin_is_not_asked_for_it_again_and_the_others_are(nodes: Nodes, pinning: Pinning) -> None:
    nodes.trouble = Unavailable("a/1", "UNIMPLEMENTED: Method not found!")
    await pinning.take(NODES)
    nodes.trouble = None
    await pinning.during(SlowLane(45.0), lambda: None)
    await pinning.release()

    assert [(what, node) for what, node, _ in nodes.calls] == [("pin", "a/0"), ("pin", "a/1"), ("renew", "a/0"), ("unpin", "a/0")]
    assert pinning.problems == {
        NODES[1]: "a/1: its retention was not held back during the run: a/1 does not answer: UNIMPLEMENTED: Method not found!"
    }
