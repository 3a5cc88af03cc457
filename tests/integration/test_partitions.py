"""A master that network namespaces part from its slaves, from its coordination store, or from both: one way, and both ways."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.testing.state import NAMESERVER
from tests.support.direct_writer import DirectWriter
from tests.support.history import History
from tests.support.partitioned_network import PartedCluster, PartedNetwork, network_for_test
from tests.support.real_group import TOPIC, RealGroup, group_of, shape
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

NODES = (NAMESERVER, "a/0", "a/1", "a/2")
SOME = 100


@dataclass(frozen=True, slots=True)
class Parted:
    """A group that fails over by itself, in a network that its tests part; the store of its record is the nameserver."""

    group: RealGroup
    network: PartedNetwork
    history: History


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parted]:
    folder: Path = tmp_path_factory.mktemp("parted")
    with network_for_test(NODES) as network, group_of(PartedCluster(folder / "cluster", shape(2, automatic=True), network)) as group:
        yield Parted(group, network, History(group))


@pytest.fixture
def whole(parted: Parted) -> Iterator[Parted]:
    parted.group.wait_led_by_all()
    yield parted
    parted.network.heal()


def others(parted: Parted, name: str) -> list[str]:
    return [each for each in parted.group.copies if each != name]


@pytest.mark.parametrize("ways", ["both ways", "what it sends", "what it receives"])
def test_a_master_that_is_cut_off_from_all_is_fenced_and_replaced(whole: Parted, ways: str) -> None:
    """One that is only deaf may have removed its slaves from the record before they miss it: then nobody leads until it hears again."""
    group, network, history, old = whole.group, whole.network, whole.history, whole.group.master()
    writer = DirectWriter(group.address(old), TOPIC, history.told)
    with group.mq.producer(retry_s=PATIENCE_S) as producer, writer.writing():
        with history.publishing(producer) as stream:
            eventually(lambda: writer.receipts, "the master acknowledges")
            there, back = ways != "what it receives", ways != "what it sends"
            network.part([old], [NAMESERVER, *others(whole, old)], there=there, back=back)
            eventually(lambda: writer.refused, "the old master refuses writes")
            if there:
                assert group.master(but=[old]) != old
                history.wait_for_more(SOME)
            network.heal()
            group.wait_led_by_all()
            history.wait_for_more(SOME)
        stream.settle()
    history.check()


def test_a_master_that_is_cut_off_from_its_slaves_only_leads_alone_or_not_at_all(whole: Parted) -> None:
    """Both sides reach the store: the one whose write comes first goes on, the master without its slaves, or a slave without the master."""
    group, network, history, old = whole.group, whole.network, whole.history, whole.group.master()
    writer = DirectWriter(group.address(old), TOPIC, history.told)
    with group.mq.producer(retry_s=PATIENCE_S) as producer, writer.writing():
        with history.publishing(producer) as stream:
            history.wait_for_more(SOME)
            network.part([old], others(whole, old))
            eventually(lambda: group.leader(but=[old]) or group.status(old).members == (old,), "one side goes on without the other")
            history.wait_for_more(SOME)
            network.heal()
            group.wait_led_by_all()
            history.wait_for_more(SOME)
        stream.settle()
    history.check()


def test_group_cut_off_from_its_coordination_store_needs_no_election(whole: Parted) -> None:
    group, network, history, old = whole.group, whole.network, whole.history, whole.group.master()
    epoch, before = group.status(old).epoch, dict(history.told.outcomes)
    with group.mq.producer() as producer:
        with history.publishing(producer):
            history.wait_for_more(SOME)
            network.part([NAMESERVER], group.copies)
            eventually(lambda: group.status(old).coordination_problem, "the master says that its store does not answer")
            history.wait_for_more(10 * SOME)
        assert (group.status(old).writable, group.status(old).epoch) == (True, epoch)
        network.heal()
        eventually(lambda: not group.status(old).coordination_problem, "its store answers")
    assert len(history.told.outcomes) > len(before)
    assert group.wait_led_by_all() == old
    history.check()
