"""The master dies, is suspended or is stopped, and the others elect the next one by themselves: nothing that was acknowledged is lost."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dittomq.errors import PreconditionFailed
from tests.support.direct_writer import DirectWriter
from tests.support.event_log import Fate
from tests.support.history import History
from tests.support.real_group import TOPIC, RealGroup, real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

SOME = 100
SILENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A group that fails over by itself, and the history of all that was done with it."""

    group: RealGroup
    history: History

    def without_receipt(self) -> list[bytes]:
        return self.history.told.bodies(Fate.UNKNOWN) + self.history.told.bodies(Fate.NOT_STORED)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with real_group(tmp_path_factory.mktemp("failover"), shape(2, automatic=True)) as group:
        yield Bench(group, History(group))


@pytest.fixture
def bench(started: Bench) -> Bench:
    started.group.cluster.start()
    started.group.wait_led_by_all()
    return started


def test_a_killed_master_is_replaced_and_follows_when_it_is_back(bench: Bench) -> None:
    group, history, old = bench.group, bench.history, bench.group.master()
    before, epoch = bench.without_receipt(), group.status(old).epoch
    with (
        history.reading(group.mq, next(name for name in group.copies if name != old)),
        group.mq.producer(retry_s=PATIENCE_S) as producer,
        group.mq.producer(retry_s=PATIENCE_S) as other,
    ):
        with history.publishing(producer) as stream, history.publishing(other, burst=1):
            history.wait_for_more(SOME)
            group.cluster.kill(old)
            leads = group.master()
            history.wait_for_more(SOME)
            group.cluster.start_node(old)
            assert group.wait_led_by_all() == leads
            history.wait_for_more(SOME)
        stream.settle()

    assert group.status(leads).epoch > epoch
    assert bench.without_receipt() == before
    history.check()


@pytest.mark.tier("nightly")
def test_a_suspended_master_is_fenced_and_its_late_writes_count_for_nothing(bench: Bench) -> None:
    group, history, old = bench.group, bench.history, bench.group.master()
    writer = DirectWriter(group.address(old), TOPIC, history.told)
    with group.mq.producer(retry_s=PATIENCE_S) as producer, writer.writing(), history.publishing(producer):
        eventually(lambda: writer.receipts, "the master acknowledges")
        with group.frozen(old):
            assert group.master(but=[old]) != old
            history.wait_for_more(SOME)
        refused = writer.refused
        eventually(lambda: writer.refused > refused, "the old master refuses writes")
        group.wait_led_by_all()
        history.wait_for_more(SOME)
    history.check()


def test_a_master_that_is_stopped_gives_its_place_away_and_no_producer_sees_an_error(bench: Bench) -> None:
    group, history = bench.group, bench.history
    before = bench.without_receipt()
    with group.mq.producer() as producer, history.publishing(producer), history.publishing(producer, burst=1):
        for _ in range(2):
            old, epoch = group.master(), group.status(group.master()).epoch
            history.wait_for_more(SOME)
            group.cluster.stop_node(old)
            leads = group.master(within_s=SILENCE_S)
            assert (leads != old, group.status(leads).epoch) == (True, epoch + 1)
            history.wait_for_more(SOME)
            group.cluster.start_node(old)
            group.wait_led_by_all()

    assert bench.without_receipt() == before
    history.check()


@pytest.mark.tier("nightly")
def test_a_paused_group_elects_only_after_resume_and_a_killed_master_returns(bench: Bench) -> None:
    group, history, old = bench.group, bench.history, bench.group.master()
    others = [name for name in group.copies if name != old]
    with group.mq.producer(retry_s=PATIENCE_S) as producer, history.publishing(producer):
        history.wait_for_more(SOME)
        assert group.mq.admin.set_paused("a", paused=True)
        group.cluster.kill(old)
        quiet = time.monotonic() + SILENCE_S + 1
        eventually(lambda: time.monotonic() > quiet, "more time has passed than an election takes")
        assert group.leader() == ""
        assert {group.status(name).failover for name in others} == {"paused"}
        group.cluster.start_node(old)
        assert group.wait_led_by_all() == old
        history.wait_for_more(SOME)

        group.cluster.kill(old)
        assert group.mq.admin.set_paused("a", paused=False)
        assert group.master() in others
        history.wait_for_more(SOME)
        group.cluster.start_node(old)
        group.wait_led_by_all()
    history.check()


def test_a_group_all_of_which_is_killed_at_once_leads_again_by_itself(bench: Bench) -> None:
    group, history = bench.group, bench.history
    with group.mq.producer(retry_s=PATIENCE_S) as producer:
        with history.publishing(producer) as stream:
            history.wait_for_more(SOME)
            for name in group.copies:
                group.cluster.kill(name)
            group.cluster.start()
            group.wait_led_by_all()
            history.wait_for_more(SOME)
        stream.settle()
    history.check()


@pytest.mark.tier("nightly")
def test_an_operator_who_allows_data_loss_learns_which_nodes_are_silent(bench: Bench) -> None:
    group, history, old = bench.group, bench.history, bench.group.master()
    first, second = (name for name in group.copies if name != old)
    with group.mq.producer(retry_s=PATIENCE_S) as producer:
        history.publish(producer, SOME)
        end = group.wait_equal()  # nothing is left to lose
        for name in (old, second):
            group.cluster.kill(name)
        with pytest.raises(PreconditionFailed, match="or add --allow-data-loss") as refused:
            group.mq.admin.failover(first)
        assert all(name in str(refused.value) for name in (old, second))
        answer = group.mq.admin.failover(first, allow_data_loss=True)
        assert sorted(answer.silent) == sorted((old, second))
        assert f"{end:,}" in answer.data_loss
        assert group.master() == first
        assert group.status(first).data_loss
        assert group.status(first).members == (first,)
        group.cluster.start()
        assert group.wait_led_by_all() == first
        history.publish(producer, SOME)
    history.check()
