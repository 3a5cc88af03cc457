"""A master that dies in its recovery, and a slave that dies in the cut it was told to make, again and again."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk_faults import harming, preloading
from tests.support.event_log import Fate
from tests.support.history import History
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.replayable_chance import replayable
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.tier("nightly")

SLAVE = "a/1"
SOME = 200
STEP = 24  # so many calls apart it dies in its recovery, which makes several times as many
SLOW_TO_LEAVE = {"replication.leave_ms": 20_000, "failover.peer_timeout_ms": 21_000}  # a slave that was killed stays a member
IN_CUT = (("commitlog", "pwrite"), ("commitlog", "fdatasync"), ("dittomq", "unlink"), ("dittomq", "rename"))


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(1, master={"replication.ack_timeout_ms": 20_000})) as running:
        yield running


def dies_at(group: RealGroup, shim: Path, name: str, harm: dict[str, str]) -> None:
    with preloading(shim, harm):
        group.cluster.start_node(name)
    assert group.exit_status(name) == signal.SIGKILL, harm


def test_a_master_that_dies_in_its_recovery_again_and_again_loses_nothing(group: RealGroup, shim: Path) -> None:
    history, root = History(group), group.cluster.data_dir(MASTER)
    with group.mq.producer(timeout_s=1.0, retry_s=PATIENCE_S) as producer:
        with history.publishing(producer) as stream:
            history.wait_for_more(SOME)
            group.cluster.kill(MASTER)
            nth = replayable().randint(1, STEP)
            dies_at(group, shim, MASTER, harming(root, nth=nth, kind="torn"))
            before = history.acknowledged()
            while history.acknowledged() == before:  # one that acknowledges has recovered
                nth += STEP
                dies_at(group, shim, MASTER, harming(root, nth=nth, kind="torn"))
            group.cluster.start_node(MASTER)
            history.wait_for_more(SOME)
        stream.settle()
    group.cluster.wait_in_sync()
    assert history.told.bodies(Fate.UNKNOWN) == []
    history.check()


def test_slave_killed_in_its_truncation_keeps_the_tail_aside_and_ends_equal(shim: Path, tmp_path: Path) -> None:
    """It is a master that had written more than it could send, and was killed; the other replica was elected without that."""
    with real_group(tmp_path, shape(1, master=SLOW_TO_LEAVE, slave=SLOW_TO_LEAVE, automatic=True)) as group:
        cluster, history, old = group.cluster, History(group), group.master()
        [other] = set(group.copies) - {old}
        with group.mq.producer(timeout_s=0.5, retry_s=0.5) as producer:
            history.publish(producer, SOME)
            begin = group.wait_equal()
            cluster.kill(other)
            history.publish(producer, 20)
            unsent = group.parsed_log(old)
            cluster.kill(old)
            cluster.start_node(other)
            assert group.master() == other
            history.publish(producer, SOME)

        for folder, call in IN_CUT:
            dies_at(group, shim, old, harming(cluster.data_dir(old) / folder, calls=call, nth=1, kind="torn"))
            assert (cluster.data_dir(old) / "dittomq" / "cut-intent").exists(), "that was not in its cut"
        cluster.start_node(old)
        assert group.wait_led_by_all() == other
        tails = [path.read_bytes() for path in (cluster.data_dir(old) / "dittomq").glob("tail-*")]
        assert tails == [unsent.content[begin:]]
        history.check()
