"""A nameserver whose process was suspended: that is no silence of a broker, and it does not know yet who lives."""

import random

import pytest

from dittomq.errors import DuplicateBrokerId
from services.nameserver.config import NameserverConfig
from services.nameserver.service import NameServer
from tests.support.manual_clock import HandClock
from tests.support.naming import UUID_B, beat, kept_values, master, slave

EXPIRY_S = 30


class Awake:
    """A nameserver that looks for silent brokers every second, except while it is suspended."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.names = NameServer(NameserverConfig(), self.clock, random.Random(1), kept_values())

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now_s += 1
            self.names.expire()

    def suspend(self, seconds: int) -> None:
        self.clock.now_s += seconds

    @property
    def is_settled(self) -> bool:
        return not self.names.route("orders", "default").warming_up


@pytest.fixture
def awake() -> Awake:
    return Awake()


@pytest.mark.parametrize("suspended_s", [EXPIRY_S // 2, EXPIRY_S + 1, 100 * EXPIRY_S])
def test_a_nameserver_that_was_suspended_forgets_nobody_for_it(awake: Awake, suspended_s: int) -> None:
    sessions = [awake.names.register(each).session_id for each in (master(), slave())]
    awake.run(9)

    awake.suspend(suspended_s)
    awake.run(EXPIRY_S - 10)

    assert awake.names.nodes == 2
    for session in sessions:
        awake.names.heartbeat(beat(session))


def test_a_silent_node_is_forgotten_though_the_nameserver_was_suspended_before(awake: Awake) -> None:
    awake.names.register(master())
    awake.suspend(100)

    awake.run(EXPIRY_S + 1)

    assert awake.names.nodes == 0


def test_a_nameserver_that_was_suspended_is_settled_only_after_another_expiry(awake: Awake) -> None:
    awake.run(2 * EXPIRY_S)
    session = awake.names.register(master()).session_id
    assert awake.is_settled

    awake.suspend(EXPIRY_S + 1)

    awake.run(1)
    assert not awake.is_settled
    for _ in range(EXPIRY_S // 10):
        awake.run(10)
        awake.names.heartbeat(beat(session))
    assert awake.is_settled


def test_who_comes_first_after_a_suspension_does_not_take_the_id_of_one_that_lives(awake: Awake) -> None:
    awake.names.register(master())
    awake.suspend(EXPIRY_S + 1)

    with pytest.raises(DuplicateBrokerId):
        awake.names.register(master(UUID_B, host="a-9"))


def test_a_suspended_nameserver_says_for_how_long_it_has_not_heard_a_holder(awake: Awake) -> None:
    awake.names.register(master())
    awake.run(2)
    awake.suspend(EXPIRY_S + 1)

    with pytest.raises(DuplicateBrokerId) as refused:
        awake.names.register(master(UUID_B, host="a-9"))

    assert refused.value.silent_ms == (2 + EXPIRY_S + 1) * 1_000


def test_a_suspended_nameserver_refuses_a_copied_disk_as_before(awake: Awake) -> None:
    awake.names.register(master(host="one"))
    awake.suspend(EXPIRY_S + 1)

    with pytest.raises(DuplicateBrokerId) as refused:
        awake.names.register(master(host="two"))

    assert refused.value.silent_ms == (EXPIRY_S + 1) * 1_000


def test_who_is_heard_after_a_suspension_is_forgotten_no_later_for_it(awake: Awake) -> None:
    session = awake.names.register(master()).session_id
    awake.suspend(100 * EXPIRY_S)
    awake.names.heartbeat(beat(session))

    awake.run(EXPIRY_S + 1)

    assert awake.names.nodes == 0


def test_a_short_pause_is_no_suspension(awake: Awake) -> None:
    awake.run(2 * EXPIRY_S)
    awake.names.register(master())

    awake.suspend(EXPIRY_S // 3)

    awake.names.expire()
    assert awake.is_settled
