"""A group whose record is in an etcd of three members: two of them are killed, and come back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.etcd import Etcd, etcd_members
from tests.support.history import History
from tests.support.real_group import RealGroup, Settings, real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

SOME = 100
SILENCE_S = 3.0
TOO_MANY = (1, 2)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with etcd_members(tmp_path / "etcd", 3) as running:
        yield running


@pytest.fixture
def recorded(etcd: Etcd, tmp_path: Path) -> Iterator[RealGroup]:
    settings: Settings = {"coordination.backend": "etcd", "coordination.endpoints": list(etcd.endpoints)}
    with real_group(tmp_path, shape(2, master=settings, slave=settings, automatic=True)) as running:
        yield running


def test_a_group_goes_on_without_two_members_of_etcd_and_fails_over_with_them(recorded: RealGroup, etcd: Etcd) -> None:
    group, history, old = recorded, History(recorded), recorded.master()
    epoch = group.status(old).epoch
    with group.mq.producer(retry_s=PATIENCE_S) as producer:
        with history.publishing(producer) as stream:
            history.wait_for_more(SOME)
            etcd.kill(*TOO_MANY)
            quiet = time.monotonic() + SILENCE_S + 1
            eventually(lambda: time.monotonic() > quiet, "more time has passed than an election takes")
            history.wait_for_more(SOME)
            assert (group.leader(), group.status(old).epoch) == (old, epoch)
            eventually(lambda: group.status(old).coordination_problem, "the master says that etcd does not answer")

            etcd.start(*TOO_MANY)
            eventually(lambda: not group.status(old).coordination_problem, "etcd answers again")
            group.cluster.kill(old)
            leads = group.master()
            history.wait_for_more(SOME)
            group.cluster.start_node(old)
            assert group.wait_led_by_all() == leads
        stream.settle()
    history.check()
