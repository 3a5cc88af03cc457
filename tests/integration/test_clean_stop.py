"""SIGTERM to each service: it drains, says so on disk, and starts again at once."""

import signal
from collections.abc import Iterator

import pytest

from dittomq.client import Message, PutStatus
from tests.support.event_log import Fate, wrong_copies
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.traffic import Publishing, messages, nothing_is_lost
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    quick = shape(nameserver={"registry.broker_expiry_ms": 5_000})  # so long it must be up before it can deny that another node leads
    with real_group(tmp_path_factory.mktemp("clean"), quick) as running:
        yield running


def ended(group: RealGroup, name: str) -> int:
    """SIGTERM; the exit status."""
    group.signal(name, signal.SIGTERM)
    return group.exit_status(name)


def stopping(group: RealGroup, stream: Iterator[Message], at: int, status: list[int]) -> Iterator[Message]:
    for number, message in enumerate(stream):
        if number == at:
            status.append(ended(group, MASTER))
            group.cluster.start_node(MASTER)
        yield message


def test_a_master_that_is_stopped_in_the_middle_of_a_publish_leaves_no_outcome_open(group: RealGroup) -> None:
    status: list[int] = []

    with group.mq.producer(retry_s=PATIENCE_S) as producer:
        publishing = Publishing(producer)
        publishing.publish(stopping(group, messages(0, 6_000), 3_000, status))

    told = publishing.told
    assert status == [0]
    assert publishing.refusals[:3] == []
    assert (told.bodies(Fate.UNKNOWN), told.bodies(Fate.NOT_STORED)) == ([], [])
    nothing_is_lost(group, told)


def test_a_master_that_was_stopped_cleanly_waits_for_no_slave_before_it_leads(group: RealGroup) -> None:
    group.cluster.wait_in_sync()
    for name in (*group.slaves, MASTER):
        assert ended(group, name) == 0

    group.cluster.start_node(MASTER)

    eventually(group.writable, "the master takes writes")
    assert group.stopped(MASTER) == "clean"
    assert group.status().members == (MASTER,), "its slaves had said goodbye"
    for name in group.slaves:
        group.cluster.start_node(name)
    group.cluster.wait_in_sync()


def test_a_rolling_restart_leaves_no_degraded_range(group: RealGroup) -> None:
    for name in group.copies:
        assert ended(group, name) == 0
        group.cluster.start_node(name)
        eventually(group.writable, "the master takes writes")
        with group.mq.producer(timeout_s=PATIENCE_S) as producer:
            assert producer.publish(TOPIC, b"while " + name.encode(), queue=0).status is PutStatus.PUT_OK
        group.cluster.wait_in_sync()

    assert not group.status().degraded


def test_a_slave_that_was_stopped_cleanly_goes_on_where_it_was(group: RealGroup) -> None:
    group.cluster.wait_in_sync()

    assert ended(group, "a/1") == 0
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        receipt = producer.publish(TOPIC, b"without a/1", queue=0)
    group.cluster.start_node("a/1")
    group.cluster.wait_in_sync()

    assert [copy.node for copy in receipt.copies] == ["a/0", "a/2"]
    assert group.stopped("a/1") == "clean"
    assert group.events("a/1", "log_truncated") == []
    assert list(wrong_copies(group.logs(), group.wait_equal())) == []
