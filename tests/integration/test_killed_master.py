"""SIGKILL of the master in the middle of a publish: what was told, what slaves serve meanwhile, what is there afterwards."""

from collections.abc import Iterator

import pytest

from dittomq.client import Message
from dittomq.errors import Unavailable
from tests.support.event_log import Fate, Told, wrong_copies, wrong_reads
from tests.support.real_group import MASTER, QUEUES, TOPIC, RealGroup, real_group
from tests.support.traffic import Publishing, messages, read_all
from tests.support.waiting import PATIENCE_S, eventually

COUNT = 8_000
KILL_AT = 4_000
IN_FLIGHT_BYTES = 256 * 1024


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("killed")) as running:
        yield running


def killing(group: RealGroup, stream: Iterator[Message], at: int) -> Iterator[Message]:
    for number, message in enumerate(stream):
        if number == at:
            group.cluster.kill(MASTER)
        yield message


def publish_the_rest(publishing: Publishing) -> bool:
    """Once more what was not stored, as a caller does; whether all of it is now."""
    told = publishing.told
    publishing.publish(Message(TOPIC, body, queue=int(body.partition(b":")[0]) % QUEUES) for body in told.bodies(Fate.NOT_STORED))
    return not told.bodies(Fate.NOT_STORED)


def slaves_serve_all_they_have(group: RealGroup) -> bool:
    return all(status.readable == status.flushed for status in map(group.status, group.slaves))


def test_master_killed_in_mid_publish_loses_nothing_acknowledged(group: RealGroup) -> None:
    with group.mq.producer(retry_s=2.0, max_waiting_bytes=IN_FLIGHT_BYTES) as producer:
        publishing = Publishing(producer)
        publishing.publish(killing(group, messages(0, COUNT, size=100), KILL_AT))
        told = publishing.told

        # The master is dead: the longest slave serves all that was acknowledged, the other one the beginning of the same log.
        assert told.bodies(Fate.NOT_STORED)
        assert all(isinstance(cause, Unavailable) for cause in publishing.refusals)
        eventually(lambda: slaves_serve_all_they_have(group), "the slaves know that their master is gone")
        longest = max(group.slaves, key=lambda name: group.status(name).end)
        alive = Told(dict(told.outcomes), dict(told.holders))
        alive.lost_with(MASTER)  # what it had waited for a slave in vain, and said so
        assert alive.holders
        assert list(wrong_reads(alive, read_all(group.mq, longest)))[:3] == []
        assert list(wrong_copies(group.logs(killed=MASTER), min(group.status(name).end for name in group.slaves))) == []
        assert not group.cluster.is_alive(MASTER)

        # It is back: whoever asks gets an answer, and what was not stored is stored now.
        group.cluster.start_node(MASTER)
        group.cluster.wait_in_sync()
        publishing.settle()
        assert told.bodies(Fate.UNKNOWN) == []
        eventually(lambda: publish_the_rest(publishing), "what was not stored is, though the producer looks for its master every 2 s only")

    end = group.wait_equal()
    for name in group.copies:
        served = read_all(group.mq, name)
        assert sum(map(len, served.values())) == COUNT
        assert list(wrong_reads(told, served))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []


@pytest.mark.tier("nightly")
def test_the_master_killed_again_and_again_loses_nothing(group: RealGroup) -> None:
    with group.mq.producer(retry_s=PATIENCE_S, max_waiting_bytes=IN_FLIGHT_BYTES) as producer:
        publishing = Publishing(producer)
        before = {queue: len(served) for queue, served in read_all(group.mq, MASTER).items()}
        for life in range(3):

            def interrupted(life: int = life) -> Iterator[Message]:
                yield from killing(group, messages(100_000 + life * 4_000, 2_000), 1_000)
                group.cluster.start_node(MASTER)
                yield from messages(102_000 + life * 4_000, 2_000)

            publishing.publish(interrupted())
        group.cluster.wait_in_sync()
        publishing.settle()

    end = group.wait_equal()
    assert publishing.told.bodies(Fate.UNKNOWN) == []
    for name in group.copies:
        read = read_all(group.mq, name)
        fresh = {body for queue, served in read.items() for _, body in served[before[queue] :]}
        assert fresh == set(publishing.told.outcomes) - set(publishing.told.bodies(Fate.NOT_STORED))
        assert sum(map(len, read.values())) == sum(before.values()) + len(fresh)
    assert list(wrong_copies(group.logs(), end)) == []
