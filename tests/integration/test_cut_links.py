"""Links that are cut, one way or both, flap, are slow, or break in the middle of a frame: what is told and shown meanwhile holds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.event_log import Fate
from tests.support.history import History
from tests.support.linked_group import SILENCE_S, LinkedGroup, linked_group
from tests.support.proxy import Way
from tests.support.real_group import MASTER, Settings
from tests.support.replayable_chance import replayable
from tests.support.waiting import PATIENCE_S, eventually, seconds_for

pytestmark = pytest.mark.tier("nightly")

TIMEOUT_S = 0.5
BUSY_S = 10.0  # so late a busy machine may be with something
DELAY_S = 0.15
SOME = 40
BOTH = (Way.THERE, Way.BACK)
SLAVE = "a/1"
SOONER_DIALS = 8
"""So many come less than a second after the one before: four short pauses, and those that grow."""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedGroup]:
    with linked_group(tmp_path_factory.mktemp("links")) as running:
        yield running


@pytest.fixture
def history(linked: LinkedGroup) -> Iterator[History]:
    """The group's; its links are whole, and are again at the end."""
    linked.link.heal()
    linked.way_in.heal()
    linked.group.cluster.wait_in_sync()
    yield linked.history
    linked.link.heal()
    linked.way_in.heal()


def slave_is_back(linked: LinkedGroup) -> float:
    """The seconds until the slave is in sync."""
    return seconds_for(lambda: eventually(lambda: linked.group.slave_state(SLAVE) == "in sync", "the slave is in sync"))


@pytest.mark.parametrize("ways", [BOTH, (Way.THERE,), (Way.BACK,)], ids=["both ways", "to the master", "to the slave"])
def test_cut_between_master_and_slave_degrades_and_heals_without_resync(
    linked: LinkedGroup, history: History, ways: tuple[Way, ...]
) -> None:
    """The group is degraded within the time that a side may be silent."""
    group, link = linked.group, linked.link
    before = len(group.events(SLAVE, "log_truncated"))
    with (
        history.reading(group.mq, MASTER),
        history.reading(group.mq, SLAVE),
        group.mq.producer(timeout_s=TIMEOUT_S, on_weak="return") as producer,
        history.publishing(producer) as stream,
    ):
        history.wait_for_more(SOME)
        link.swallow(*ways) if len(ways) == 1 else link.hold(*ways)
        eventually(lambda: group.status().degraded, "the group is degraded", within_s=2 * TIMEOUT_S + SILENCE_S + BUSY_S)
        cut_at = group.status().confirmed
        eventually(lambda: group.slave_state(SLAVE) == "gone", "the master knows that its slave is gone")
        history.wait_for_more(SOME)
        assert stream.receipts[-1].copies == stream.receipts[-1].copies[:1]
        history.check_holders()

        carried = link.carried(Way.BACK)
        link.heal()
        slave_is_back(linked)
        history.wait_for_more(SOME)
        sent_again = link.carried(Way.BACK) - carried
    eventually(lambda: not group.status().degraded, "the group is not degraded any more")
    end = history.check()
    assert sent_again < 2 * (end - cut_at) + 64 * 1024, "what the slave had was sent again"
    assert len(group.events(SLAVE, "log_truncated")) == before
    assert history.told.bodies(Fate.UNKNOWN) == history.told.bodies(Fate.NOT_STORED) == []


@pytest.mark.parametrize("fault", ["answers are swallowed", "requests are swallowed", "connections break"])
def test_client_cut_off_from_the_master_stores_nothing_twice(linked: LinkedGroup, history: History, fault: str) -> None:
    """It hears of nothing wrong, and sends again."""
    group, way_in = linked.group, linked.way_in
    before = set(history.told.bodies(Fate.UNKNOWN))
    with linked.mq.producer(timeout_s=TIMEOUT_S, retry_s=0.5) as producer:
        with history.publishing(producer) as stream:
            history.wait_for_more(SOME)
            match fault:
                case "answers are swallowed":
                    way_in.swallow(Way.BACK)
                case "requests are swallowed":
                    way_in.swallow(Way.THERE)
                case _:
                    for _ in range(5):
                        way_in.sever()
                        history.wait_for_more(SOME)
            if "swallowed" in fault:
                eventually(lambda: set(history.told.bodies(Fate.UNKNOWN)) != before, "an outcome is unknown")
                eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave is in sync, though nobody hears of it")
                way_in.heal()
            history.wait_for_more(SOME)
        if fault == "requests are swallowed":  # absence in the same epoch proves nothing
            assert stream.receipts
        else:
            stream.settle()
            assert set(history.told.bodies(Fate.UNKNOWN)) == before
    eventually(lambda: not group.status().degraded, "the group is not degraded")
    history.check()


@pytest.mark.parametrize("way", BOTH, ids=["to the master", "to the slave"])
def test_a_stream_that_breaks_in_the_middle_of_a_frame_leaves_no_part_of_it(linked: LinkedGroup, history: History, way: Way) -> None:
    chance = replayable()
    most = 200_000 if way is Way.BACK else 4_000
    with (
        history.reading(linked.group.mq, SLAVE),
        linked.group.mq.producer(on_weak="return") as producer,
        history.publishing(producer, size=3_000, burst=64),
    ):
        for _ in range(4):
            dialled = len(linked.link.dialled)
            linked.link.cut_after(chance.randrange(1, most), way)
            eventually(lambda dialled=dialled: len(linked.link.dialled) > dialled, "the slave dials again")  # type: ignore[misc]
            slave_is_back(linked)
    history.check()


def test_a_link_that_flaps_sees_few_dials_and_lets_the_log_pass(linked: LinkedGroup, history: History) -> None:
    group, link = linked.group, linked.link
    with group.mq.producer(timeout_s=TIMEOUT_S, on_weak="return") as producer, history.publishing(producer):
        dialled, end = len(link.dialled), group.status(SLAVE).end
        with link.flapping(0.1, 0.1):
            flapped_s = seconds_for(lambda: eventually(lambda: link.flaps >= 25, "it has flapped for 5 s"))
            flapped_s += seconds_for(lambda: eventually(lambda: group.status(SLAVE).end > end, "the log passes while it flaps"))
            tried = len(link.dialled) - dialled
        slave_is_back(linked)
        history.wait_for_more(SOME)
    assert tried <= 2 * (SOONER_DIALS + flapped_s), "gRPC connects once more by itself where a connection breaks before both have greeted"
    history.check()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[LinkedGroup]:
    """Its streams end after more silence than a busy machine makes."""
    silence: Settings = {"failover.peer_timeout_ms": 10_000}
    with linked_group(tmp_path, master=silence, slave=silence) as running:
        yield running


def test_a_slow_link_makes_writes_slow_and_nobody_is_taken_for_dead(patient: LinkedGroup) -> None:
    group, link, history = patient.group, patient.link, patient.history
    dropped = len(group.events(MASTER, "slave_dropped"))
    with group.mq.producer(timeout_s=PATIENCE_S) as producer, history.publishing(producer) as stream:
        history.wait_for_more(SOME)
        link.delay(DELAY_S, *BOTH)
        assert seconds_for(lambda: history.publish(producer, 1)) >= 2 * DELAY_S, "a message is acknowledged before a slave can have said so"
        history.wait_for_more(SOME)
        link.dribble(1_250, 0.01, *BOTH)  # 1 Mbit/s
        history.publish(producer, 100, size=1_000)
        history.wait_for_more(SOME)
    assert {len(receipt.copies) for receipt in stream.receipts} == {2}
    assert group.status().degraded is False
    assert len(group.events(MASTER, "slave_dropped")) == dropped
    history.check()


def test_a_half_open_connection_is_given_up_after_the_silence_limit(linked: LinkedGroup, history: History) -> None:
    """The master's machine is gone without a word: nothing tells the slave that its connection leads nowhere. Then it is back."""
    group, link = linked.group, linked.link
    with group.mq.producer(retry_s=30.0, on_weak="return") as producer, history.publishing(producer) as stream:
        history.wait_for_more(SOME)
        ended = len(group.events(SLAVE, "stream_ended"))
        link.hide_ends()
        group.cluster.kill(MASTER)
        took = seconds_for(lambda: eventually(lambda: group.events(SLAVE, "stream_ended")[ended:], "the slave has given up its stream"))
        group.cluster.start_node(MASTER)
        slave_is_back(linked)
        history.wait_for_more(SOME)
    stream.settle()
    [first, *_] = group.events(SLAVE, "stream_ended")[ended:]
    assert "silent" in first["reason"], first
    assert took < SILENCE_S + BUSY_S
    history.check()
