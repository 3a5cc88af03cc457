"""A network between a master and its slave that loses packets: slower, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.history import History
from tests.support.linked_group import QUICK
from tests.support.lossy_link import LossyLink, lossy_link
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.replayable_chance import replayable
from tests.support.waiting import PATIENCE_S, eventually, seconds_for

pytestmark = pytest.mark.tier("nightly")

SLAVE = "a/1"
SOME = 40
RESENT_S = 0.1  # TCP waits for 0.2 s at least before it sends anything a second time
PORT = 10_912
PATIENT = {**QUICK, "failover.peer_timeout_ms": 20_000}  # TCP stands still for six seconds at most


@pytest.fixture
def link() -> Iterator[LossyLink]:
    with lossy_link(replayable()) as made:
        yield made


@pytest.fixture
def group(link: LossyLink, tmp_path: Path) -> Iterator[RealGroup]:
    beyond = {"listen.replication": f"{link.near}:{PORT}", "advertise_replication.default": f"{link.far}:{PORT}"}
    with real_group(tmp_path, shape(1, master={**PATIENT, **beyond}, slave=PATIENT)) as running:
        yield running


def test_lossy_network_slows_writes_and_ends_no_session(link: LossyLink, group: RealGroup) -> None:
    """It loses three packets of ten."""
    history, dropped, ended = History(group), group.events(MASTER, "slave_dropped"), group.events(SLAVE, "stream_ended")
    with history.reading(group.mq, SLAVE), group.mq.producer(timeout_s=PATIENCE_S) as producer:
        usual_s = min(seconds_for(lambda: history.publish(producer, 1)) for _ in range(SOME))
        with history.publishing(producer) as stream:
            link.share = 0.3
            slow_s = max(seconds_for(lambda: history.publish(producer, 1)) for _ in range(SOME))
            assert slow_s > usual_s + RESENT_S, "no message has waited for a packet that was lost"
            history.wait_for_more(SOME)
            history.publish(producer, SOME, size=1_000)
        assert {len(receipt.copies) for receipt in stream.receipts} == {2}
        assert not group.status().degraded
        assert (group.events(MASTER, "slave_dropped"), group.events(SLAVE, "stream_ended")) == (dropped, ended)

        group.cluster.kill(SLAVE)
        eventually(lambda: group.slave_state(SLAVE) == "gone", "the slave is gone")
        history.publish(producer, 2 * SOME, size=1_000)
        group.cluster.start_node(SLAVE)
        eventually(lambda: group.slave_state(SLAVE) == "in sync", "the slave has caught up")
        history.publish(producer, SOME)
        link.share = 0.0
    history.check()
    print(f"{link.lost:,} packets were lost, {link.passed:,} were not")
    assert link.lost > 0
