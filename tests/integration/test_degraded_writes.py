"""Writes while slaves are dead: degraded and said so, or refused where the group is told to."""

from collections.abc import Iterator

import pytest

from dittomq.client import NotStored, PutStatus
from dittomq.errors import NotEnoughReplicas
from tests.support.command_line import CommandLine
from tests.support.event_log import wrong_copies
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.traffic import missed
from tests.support.waiting import PATIENCE_S, eventually, seconds_for

pytestmark = pytest.mark.tier("nightly")

TIMEOUT_S = 0.5


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("degraded"), shape(nameserver={"registry.broker_expiry_ms": 5_000})) as running:
        yield running


@pytest.fixture
def strict_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("strict"), shape(1, master={"replication.min_in_sync_replicas": 2})) as running:
        yield running


def test_dead_slaves_cost_two_deadlines_then_writes_are_degraded(group: RealGroup, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Writes go on with one copy and say so."""
    for name in group.slaves:
        group.cluster.kill(name)

    with group.mq.producer(timeout_s=TIMEOUT_S, on_weak="return") as producer:
        receipts = missed(producer, 2)
    with group.mq.producer(timeout_s=PATIENCE_S, on_weak="return") as producer:
        took = seconds_for(lambda: receipts.append(producer.publish(TOPIC, f"{len(receipts)}", queue=0)))

    assert receipts[-1].status is PutStatus.SLAVE_NOT_AVAILABLE
    assert [str(copy) for copy in receipts[-1].copies] == ["a/0 flushed"]
    assert took < PATIENCE_S, "nobody waits for slaves that are known to be dead"
    count = len(receipts)
    status = group.status()
    assert (status.degraded, status.in_sync_now, status.writable, status.confirmed) == (True, 1, True, status.end)
    reader = group.mq.reader(TOPIC, 0, node=MASTER)
    eventually(
        lambda: [message.body for message in reader.messages(until_end=True)] == [b"%d" % at for at in range(count)], "all can be read"
    )
    said = CommandLine(tmp_path_factory.mktemp("cli")).run("ha", "status", "--nameserver", group.cluster.nameserver)
    assert (said.code, "DEGRADED since" in said.out) == (3, True)
    assert status.members == (MASTER,)

    # The group record keeps it over a crash of the master, and it ends when a slave is back.
    group.cluster.kill(MASTER)
    group.cluster.start_node(MASTER)
    eventually(group.writable, "the master takes writes")
    assert (group.status().degraded, group.status().members) == (True, (MASTER,))
    group.cluster.start_node("a/2")
    eventually(lambda: group.slave_state("a/2") == "in sync", "a/2 is in sync")
    assert not group.status().degraded
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        assert producer.publish(TOPIC, "more", queue=0).status is PutStatus.PUT_OK
    group.cluster.start_node("a/1")
    group.cluster.wait_in_sync()
    assert list(wrong_copies(group.logs(), group.wait_equal())) == []


def test_below_min_in_sync_replicas_a_write_is_refused_and_nothing_is_written(strict_group: RealGroup) -> None:
    group = strict_group
    group.cluster.kill("a/1")

    weak: list[bytes] = []  # what the master took before it knew

    def is_refused() -> bool:
        try:
            producer.publish(TOPIC, b"%d" % len(weak), queue=0)
        except NotStored as refused:
            return isinstance(refused.cause, NotEnoughReplicas)
        weak.append(b"%d" % len(weak))
        return False

    with group.mq.producer(timeout_s=TIMEOUT_S, retry_s=0.5, on_weak="return") as producer:
        eventually(is_refused, "too few copies are told")
        end = group.status().end
        assert is_refused()

    assert (group.status().end, group.status().writable, group.status().degraded) == (end, False, False)
    assert group.mq.reader(TOPIC, 0, node=MASTER).pull(0).messages == ()

    group.cluster.start_node("a/1")
    eventually(group.writable, "the master takes writes again")
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        assert producer.publish(TOPIC, "more", queue=0).status is PutStatus.PUT_OK
    group.wait_equal()
    bodies = [message.body for message in group.mq.reader(TOPIC, 0, node="a/1").messages(until_end=True)]
    assert bodies == [*weak, b"more"]
    assert not group.status().degraded
