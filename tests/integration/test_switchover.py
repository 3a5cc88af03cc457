"""A slave of real processes takes its master's place, under load and after a kill."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from dittomq.client import Message
from tests.support.command_line import CommandLine, Ran
from tests.support.counted_sends import counted_producer
from tests.support.history import History
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.told import Fate, wrong_copies, wrong_reads
from tests.support.traffic import Publishing, messages, read_all
from tests.support.waiting import eventually

SECOND = "a/1"
SOME = 400


def commanded(group: RealGroup, tmp_path: Path, *arguments: str) -> str:
    """What `dittomq role …` says of a change that is done. A slave that stands still just then is missed: then it is said again."""
    command = CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver)

    def tried() -> Ran | None:
        ran = command.run("role", *arguments)
        return None if "slaves answer that together hold" in ran.err else ran

    ran = eventually(tried, "enough slaves answer")
    assert ran is not None
    assert ran.code == 0, ran.err
    return ran.out


def test_places_are_changed_under_load_and_every_message_is_stored_once(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(2)) as group, group.mq.producer(max_waiting_bytes=64 * 1024) as producer:
        pids = {name: group.cluster.pid(name) for name in group.copies}
        publishing, answered = Publishing(producer), [time.monotonic()]

        def one_by_one(first: int, count: int) -> None:
            for number in range(first, first + count):
                publishing.publish(messages(number, 1))
                answered.append(time.monotonic())

        one_by_one(0, 200)
        change = group.mq.admin.change_role(SECOND)
        one_by_one(200, 400)

        pause = max(after - before for before, after in pairwise(answered))
        print(f"longest pause of a producer: {pause:.2f} s")
        told = publishing.told
        assert (told.bodies(Fate.UNKNOWN), told.bodies(Fate.NOT_STORED)) == ([], [])
        assert {name: group.cluster.pid(name) for name in group.copies} == pids
        eventually(lambda: group.leads_all(SECOND), "the old master and the other slave follow")
        assert (group.status(SECOND).epoch, group.status(SECOND).degraded) == (change.epoch, False)
        ids = {SECOND: 0, "a/0": 1, "a/2": 2}  # the old master takes the id that was given up with its next registration
        eventually(lambda: {node.name: node.broker_id for node in group.mq.admin.list_brokers()} == ids, "ids have changed places")
        end = group.wait_equal()
        for name in group.copies:
            assert list(wrong_reads(told, read_all(group.mq, name)))[:3] == []
        assert list(wrong_copies(group.logs(), end)) == []


@pytest.mark.parametrize("slaves", [1, 2])
def test_a_client_sends_no_message_a_third_time_while_places_are_changed_under_load_and_no_range_is_degraded(
    tmp_path: Path, slaves: int
) -> None:
    with real_group(tmp_path, shape(slaves)) as group, counted_producer(group.cluster.nameserver) as (producer, sends):
        history = History(group)
        with history.publishing(producer), history.publishing(producer, burst=1), history.publishing(producer, burst=300):
            for leads in (SECOND, MASTER, SECOND, MASTER):
                history.wait_for_more(SOME)
                group.mq.admin.change_role(leads)
                eventually(lambda leads=leads: group.leads_all(leads), f"{leads} leads all copies")  # type: ignore[misc]
            history.wait_for_more(SOME)

        history.check()
        told = history.told
        assert (told.bodies(Fate.UNKNOWN), told.bodies(Fate.NOT_STORED)) == ([], [])
        print(f"{sends.retried()} of {len(told.outcomes):,} messages were sent twice")
        assert sends.most_retries() == 1
        assert [group.status(name).degraded_bytes for name in group.copies] == [0] * (1 + slaves)


def test_a_killed_master_is_replaced_by_command_and_comes_back_as_a_slave_that_is_equal(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(2)) as group, group.mq.producer(retry_s=60.0, max_waiting_bytes=64 * 1024) as producer:
        publishing = Publishing(producer)

        def replaced(stream: Iterator[Message]) -> Iterator[Message]:
            for number, message in enumerate(stream):
                if number == 3_000:
                    group.cluster.kill("a/0")
                    eventually(lambda: all(group.status(name).waiting_for for name in group.slaves), "they get no more of it")
                    longest = max(group.slaves, key=lambda name: group.status(name).end)
                    said = commanded(group, tmp_path, "lead", longest, "--old-master-is-stopped")
                    assert said.startswith(f"{longest} leads since epoch ")
                    assert said.endswith("may be lost: what a/0 confirmed on fewer than 2 copies, if anything: only that one knows\n")
                yield message

        publishing.publish(replaced(messages(0, 6_000)))
        group.cluster.start_node("a/0")
        publishing.settle()

        told = publishing.told
        assert (told.bodies(Fate.UNKNOWN), told.bodies(Fate.NOT_STORED)) == ([], [])
        [leader] = [node.name for node in group.mq.admin.list_brokers() if node.broker_id == 0]
        assert leader != "a/0"
        eventually(lambda: group.leads_all(leader), "all copies are in sync again")
        assert [entry["service"] for entry in group.events("a/0", "comes_back")] == ["slave"]
        end = group.wait_equal()
        for name in group.copies:
            assert list(wrong_reads(told, read_all(group.mq, name)))[:3] == []
        assert list(wrong_copies(group.logs(), end)) == []
        assert TOPIC in group.topics("a/0")
