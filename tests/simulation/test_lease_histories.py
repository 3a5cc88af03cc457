"""Receivers without a session that forget messages, over a failover: nothing is left out, and what is acknowledged stays so.

Each deliberate bug below breaks one of the two, and the checker finds it.
"""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from dittomq.client import AckLevelNotReached, AsyncClient, Message
from dittomq.errors import DittoError
from tests.simulation.bugs.leases import BUGS
from tests.simulation.bugs.patches import Patches
from tests.simulation.group import Group, play
from tests.support.lease_calls import acknowledged, fill, received

MESSAGES = 30
NODES = ("a0:10911", "a1:10911")


@dataclass
class Handled:
    """What is `published`, which `bodies` were handled, and in `counts` how often each record was acknowledged in each term.

    Before the failover, in term 0, a message is acknowledged once, by whichever record. After it a message may come by two records: as it
    was published, and as a copy of which the new master knew no commit.
    """

    published: set[bytes] = field(default_factory=set)
    bodies: set[bytes] = field(default_factory=set)
    counts: Counter[tuple[int, str, int]] = field(default_factory=Counter)
    first: Counter[bytes] = field(default_factory=Counter)
    term: int = 0

    def broken(self) -> list[str]:
        """What no lease and no failover explains."""
        twice = [str(key) for counts in (self.counts, self.first) for key, times in counts.items() if times > 1]
        return [f"never handled: {body!r}" for body in sorted(self.missing)] + [f"acknowledged twice: {key}" for key in twice]

    @property
    def missing(self) -> set[bytes]:
        return self.published - self.bodies


async def handle(mq: AsyncClient, handled: Handled, leased: Any, *, node: str, forgets: bool) -> None:
    term, message = handled.term, leased.message
    if not forgets and await acknowledged(mq, [leased], at=node) == [True]:
        handled.counts[term, message.topic, message.queue_offset] += 1
        handled.bodies.add(message.body)
        handled.first[message.body] += term == 0


async def receive_for_ever(mq: AsyncClient, handled: Handled, chance: random.Random) -> None:
    """Handle what comes from either node, but forget every fourth message: its lease ends."""
    for node in itertools.cycle(NODES):
        with contextlib.suppress(DittoError):
            for leased in await received(mq, 3, lease_s=2, at=node):
                await handle(mq, handled, leased, node=node, forgets=chance.random() < 0.25)
        await asyncio.sleep(0.1)


async def publish_all(mq: AsyncClient, handled: Handled) -> None:
    async with mq.producer() as producer:
        for number in range(MESSAGES):
            with contextlib.suppress(AckLevelNotReached):  # it is stored
                await producer.publish_message(Message("orders", b"%d" % number, 0))
            handled.published.add(b"%d" % number)
            await asyncio.sleep(0.2)


def live(handled: Handled, seed: int) -> Callable[[Group, AsyncClient], Any]:
    """Two receivers, one publisher, and a failover while both are busy."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await fill(mq, 0)
        await asyncio.sleep(12)  # the slave has the tables
        receivers = [asyncio.create_task(receive_for_ever(mq, handled, random.Random(seed + number))) for number in range(2)]
        publishing = asyncio.create_task(publish_all(mq, handled))
        await asyncio.sleep(3)
        await group.kill("a0")
        handled.term += 1
        await group.fail_over("a/1")
        group.node("a0").start()
        await publishing
        for _ in range(60):
            await asyncio.sleep(1)
            if not handled.missing:
                break
        await asyncio.sleep(6)
        for receiver in receivers:
            receiver.cancel()

    return story


def history(seed: int = 1) -> list[str]:
    handled = Handled()
    play(live(handled, seed), seed=seed)
    assert len(handled.published) == MESSAGES
    return handled.broken()


@pytest.mark.parametrize("seed", range(1, 4))
def test_every_message_is_handled_and_none_twice_in_a_term(seed: int) -> None:
    assert history(seed) == []


_BY_DAY = "acknowledgements_are_not_kept"  # of the others test_mutants.py tells as much, and the honest runs above would fail


@pytest.mark.parametrize(
    "bug",
    [bug if bug.__name__ == _BY_DAY else pytest.param(bug, marks=pytest.mark.tier("nightly")) for bug in BUGS],
    ids=lambda bug: bug.__name__,
)
def test_checker_finds_each_bug_in_leases(bug: Callable[[Patches], None]) -> None:
    patches = Patches()
    try:
        bug(patches)
        assert history() != []
    finally:
        patches.undo()
