"""Slaves that stand still (SIGSTOP): the group goes on without them, and they catch up."""

from collections.abc import Iterator

import pytest

from dittomq.client import PutStatus
from tests.support.event_log import Fate, wrong_copies, wrong_reads
from tests.support.real_group import TOPIC, RealGroup, real_group
from tests.support.traffic import Publishing, messages, missed, read_all
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

TIMEOUT_S = 0.5


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("frozen")) as running:
        yield running


def test_writes_go_on_with_the_other_slave_and_the_frozen_one_catches_up(group: RealGroup) -> None:
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        publishing = Publishing(producer)
        with group.frozen("a/1"):
            receipts = publishing.publish(messages(0, 2_000, size=500))

    assert len(receipts) == 2_000
    assert {(receipt.status, tuple(copy.node for copy in receipt.copies)) for receipt in receipts} == {(PutStatus.PUT_OK, ("a/0", "a/2"))}
    end = group.wait_equal()
    assert not group.status().degraded
    assert list(wrong_reads(publishing.told, read_all(group.mq, "a/1")))[:3] == []
    assert list(wrong_copies(group.logs(), end)) == []


def test_with_every_slave_frozen_two_deadlines_are_missed_and_the_group_recovers(group: RealGroup) -> None:
    with group.frozen("a/1"), group.frozen("a/2"):
        with group.mq.producer(timeout_s=TIMEOUT_S, on_weak="return") as producer:
            missed(producer, 2)
        with group.mq.producer(timeout_s=PATIENCE_S, on_weak="return") as producer:
            statuses = [producer.publish(TOPIC, f"frozen {number}", queue=0).status for number in range(2)]
        degraded = group.status()

    assert statuses == [PutStatus.SLAVE_NOT_AVAILABLE] * 2
    assert (degraded.degraded, degraded.in_sync_now) == (True, 1)
    eventually(lambda: group.status().in_sync_now == 3, "both slaves are in sync again")
    assert group.status().degraded is False
    assert list(wrong_copies(group.logs(), group.wait_equal())) == []


def test_a_frozen_master_leaves_outcomes_unknown_and_never_wrong(group: RealGroup) -> None:
    with group.mq.producer(timeout_s=TIMEOUT_S, retry_s=0.5) as producer:
        publishing = Publishing(producer)
        eventually(lambda: publishing.publish(messages(10_000, 1)), "it is connected, so what follows is sent")
        with group.frozen("a/0"):
            publishing.publish(messages(11_000, 100))
        unknown = set(publishing.told.bodies(Fate.UNKNOWN))
        publishing.settle()
        group.wait_equal()

    stored = {body for served in read_all(group.mq, "a/0").values() for _, body in served}
    assert unknown
    assert not {body for body, told in publishing.told.outcomes.items() if told is Fate.NOT_STORED} & stored
    assert {body for body, told in publishing.told.outcomes.items() if not isinstance(told, Fate)} <= stored
