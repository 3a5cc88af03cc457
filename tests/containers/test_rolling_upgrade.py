"""A group in containers of an older image, whose nodes are replaced by ones of this tree's image, one by one and under load."""

from collections.abc import Iterator

import pytest

from dittomq.testing.state import NAMESERVER
from tests.support.contained_group import TAG, ContainedGroup, contained_group
from tests.support.container_cluster import MadeOf, etcd_container, two_networks
from tests.support.containers import images, previous_image
from tests.support.event_log import Fate
from tests.support.real_group import Settings, shape

pytestmark = pytest.mark.tier("nightly")


@pytest.fixture
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainedGroup]:
    images(TAG)  # with it come the wheels
    image = previous_image(tmp_path_factory.mktemp("previous"))
    with two_networks() as networks, etcd_container(networks, image) as etcd:
        settings: Settings = {"coordination.backend": "etcd", "coordination.endpoints": [etcd]}
        of = shape(2, master=settings, slave=settings, automatic=True)
        with contained_group(tmp_path_factory.mktemp("upgraded"), of, networks, MadeOf(image)) as made:
            yield made


def test_a_rolling_upgrade_under_load_refuses_nothing_and_loses_nothing(older: ContainedGroup) -> None:
    """The nameserver first, then the slaves, the master last; both versions are members of the group meanwhile."""
    new, group, history, old = images(TAG)["broker"], older.group, older.history, older.group.master()
    with older.under_load():
        older.cluster.replace_image(NAMESERVER, new)
        for name in (*older.others(old), old):
            older.cluster.replace_image(name, new)
            group.wait_led_by_all()
    assert history.told.bodies(Fate.NOT_STORED) == []
