"""An operator lets another node lead, as planned and under load: no message fails, and none is stored twice."""

import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.counted_sends import counted_producer
from tests.support.event_log import Fate
from tests.support.history import History
from tests.support.real_group import MASTER, real_group, shape
from tests.support.traffic import Publishing, messages, nothing_is_lost
from tests.support.waiting import eventually

SECOND = "a/1"
SOME = 400


@pytest.mark.tier("nightly")
def test_places_are_changed_under_load_and_every_message_is_stored_once(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(2)) as group, group.mq.producer(max_waiting_bytes=64 * 1024) as producer:
        pids = {name: group.cluster.pid(name) for name in group.copies}
        publishing, answered = Publishing(producer), [time.monotonic()]

        def one_by_one(first: int, count: int) -> None:
            for number in range(first, first + count):
                publishing.publish(messages(number, 1))
                answered.append(time.monotonic())

        one_by_one(0, 200)
        before = group.mq.admin.switchover(SECOND)
        one_by_one(200, 400)

        pause = max(after - before for before, after in pairwise(answered))
        print(f"longest pause of a producer: {pause:.2f} s")
        told = publishing.told
        assert (told.bodies(Fate.UNKNOWN), told.bodies(Fate.NOT_STORED)) == ([], [])
        assert {name: group.cluster.pid(name) for name in group.copies} == pids
        eventually(lambda: group.leads_all(SECOND), "the old master and the other slave follow")
        assert (group.status(SECOND).epoch, group.status(SECOND).degraded) == (before.epoch + 1, False)
        ids = {SECOND: 0, "a/0": 1, "a/2": 2}
        eventually(lambda: {node.name: node.broker_id for node in group.mq.admin.list_brokers()} == ids, "ids on the wire follow")
        nothing_is_lost(group, told)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("slaves", [1, 2])
def test_a_client_sends_no_message_a_third_time_during_planned_switchovers(tmp_path: Path, slaves: int) -> None:
    with real_group(tmp_path, shape(slaves)) as group, counted_producer(group.cluster.nameserver) as (producer, sends):
        history = History(group)
        with history.publishing(producer), history.publishing(producer, burst=1), history.publishing(producer, burst=300):
            for leads in (SECOND, MASTER):
                history.wait_for_more(SOME)
                group.mq.admin.switchover(leads)
                eventually(lambda leads=leads: group.leads_all(leads), f"{leads} leads all copies")  # type: ignore[misc]
            history.wait_for_more(SOME)

        history.check()
        told = history.told
        assert (told.bodies(Fate.UNKNOWN), told.bodies(Fate.NOT_STORED)) == ([], [])
        print(f"{sends.retried()} of {len(told.outcomes):,} messages were sent twice")
        assert sends.most_retries() == 1
        assert not group.status().degraded


def test_the_operators_commands_change_the_master_and_say_so(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(2)) as group, group.mq.producer(retry_s=60.0) as producer:
        command, history = CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver), History(group)
        with history.publishing(producer):
            history.wait_for_more(SOME)
            planned = command.run("ha", "switchover", SECOND)
            assert planned.code == 0, planned
            assert group.leader() == SECOND
            group.cluster.kill(SECOND)
            forced = command.run("ha", "failover", "a/2")
            assert forced.code == 0, forced
            assert group.leader() == "a/2"
            group.cluster.start_node(SECOND)
            history.wait_for_more(SOME)
        eventually(lambda: group.leads_all("a/2"), "all copies follow again")
        told = command.run("ha", "history", "a")
        history.check()

    assert (history.told.bodies(Fate.UNKNOWN), history.told.bodies(Fate.NOT_STORED)) == ([], [])
    assert told.code == 0, told
    assert "a/2" in told.out
