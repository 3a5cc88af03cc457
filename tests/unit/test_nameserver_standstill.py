"""A nameserver whose process stood still: nobody was silent meanwhile, and it does not know yet who lives."""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from dittomq.errors import NodeIdTaken
from dittomq.routes import Beat, BeatAnswer, Membership, Registration
from services.nameserver.config import NameserverConfig
from services.nameserver.keeping import Keeper
from services.nameserver.names import Names
from services.nameserver.openings import Openings
from tests.support.lanes import InlineLane
from tests.support.naming import UUID_B, beat, master, slave
from tests.support.stores import Machine

EXPIRY_S = 30

T = TypeVar("T")


class HandClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1_000)


class Awake:
    """A nameserver that looks for silent brokers every second, except while it stands still."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.clock = HandClock()
        self._runner = runner
        chance, openings = random.Random(1), Openings()
        self._keeper = Keeper(openings, Machine(chance).storage(), InlineLane(), self.clock)
        self.names = Names(NameserverConfig(), self.clock, chance, openings, self._keeper)

    def register(self, registration: Registration) -> Membership:
        return self._runner.run(self._answered(self.names.register(registration)))

    def heartbeat(self, beat: Beat) -> BeatAnswer:
        return self._runner.run(self._answered(self.names.heartbeat(beat)))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now_s += 1
            self.names.expire()

    def stand_still(self, seconds: int) -> None:
        self.clock.now_s += seconds

    async def _answered(self, answer: Coroutine[Any, Any, T]) -> T:
        keeping = asyncio.get_running_loop().create_task(self._keeper.run())
        try:
            return await answer
        finally:
            keeping.cancel()


def is_settled(membership: Membership) -> bool:
    return membership.uptime_ms >= membership.broker_expiry_ms


@pytest.fixture
def awake() -> Iterator[Awake]:
    with asyncio.Runner() as runner:
        yield Awake(runner)


@pytest.mark.parametrize("still_s", [EXPIRY_S // 2, EXPIRY_S + 1, 100 * EXPIRY_S])
def test_a_nameserver_that_stood_still_forgets_nobody_for_it(awake: Awake, still_s: int) -> None:
    sessions = [awake.register(each).session_id for each in (master(), slave())]
    awake.run(9)

    awake.stand_still(still_s)
    awake.run(EXPIRY_S - 10)

    assert awake.names.nodes == 2
    for session in sessions:
        awake.heartbeat(beat(session))


def test_who_is_silent_for_the_expiry_is_forgotten_though_the_nameserver_stood_still_before(awake: Awake) -> None:
    awake.register(master())
    awake.stand_still(100)

    awake.run(EXPIRY_S + 1)

    assert awake.names.nodes == 0


def test_a_nameserver_that_stood_still_is_settled_only_when_all_have_had_time_to_say_what_happened_meanwhile(awake: Awake) -> None:
    awake.run(2 * EXPIRY_S)
    assert is_settled(awake.register(master()))

    awake.stand_still(EXPIRY_S + 1)

    assert not is_settled(awake.register(slave()))
    awake.run(EXPIRY_S)
    assert is_settled(awake.register(slave()))


def test_who_comes_first_after_a_standstill_does_not_take_the_id_of_one_that_lives(awake: Awake) -> None:
    awake.register(master())
    awake.stand_still(EXPIRY_S + 1)

    with pytest.raises(NodeIdTaken):
        awake.register(master(UUID_B, host="a-9"))


def test_a_nameserver_that_stood_still_says_truly_for_how_long_it_has_not_heard_the_holder_of_an_id(awake: Awake) -> None:
    awake.register(master())
    awake.run(2)
    awake.stand_still(EXPIRY_S + 1)

    with pytest.raises(NodeIdTaken) as refused:
        awake.register(master(UUID_B, host="a-9"))

    assert refused.value.silent_ms == (2 + EXPIRY_S + 1) * 1_000


def test_a_nameserver_that_stood_still_says_truly_for_how_long_it_has_not_heard_the_other_address_of_a_replica(awake: Awake) -> None:
    awake.register(master(host="one"))
    awake.run(1)
    awake.register(master(host="two"))
    awake.stand_still(EXPIRY_S + 1)

    with pytest.raises(NodeIdTaken) as refused:
        awake.register(master(host="one"))

    assert refused.value.silent_ms == (EXPIRY_S + 1) * 1_000


def test_who_is_heard_after_a_standstill_is_forgotten_no_later_for_it(awake: Awake) -> None:
    session = awake.register(master()).session_id
    awake.stand_still(100 * EXPIRY_S)
    awake.heartbeat(beat(session))

    awake.run(EXPIRY_S + 1)

    assert awake.names.nodes == 0


def test_a_short_pause_is_no_standstill(awake: Awake) -> None:
    awake.run(2 * EXPIRY_S)

    awake.stand_still(EXPIRY_S // 3)

    assert is_settled(awake.register(master()))
