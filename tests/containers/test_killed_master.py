"""The one path through containers that `make test` takes: the broker's image is built here, also from nothing, and a master is killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.contained_group import SOME, TAG, ContainedGroup, contained_group
from tests.support.container_cluster import MadeOf, etcd_container, two_networks
from tests.support.containers import images
from tests.support.real_group import Settings, shape


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[ContainedGroup]:
    image = images(TAG, "broker")["broker"]
    with two_networks() as networks, etcd_container(networks, image) as etcd:
        settings: Settings = {"coordination.backend": "etcd", "coordination.endpoints": [etcd]}
        of = shape(2, master=settings, slave=settings, automatic=True)
        with contained_group(tmp_path, of, networks, MadeOf(image)) as made:
            yield made


def test_a_master_that_is_killed_is_replaced_and_takes_nothing_with_it(contained: ContainedGroup, tmp_path: Path) -> None:
    """The audit is this tree's: its image, which holds Spark and a JRE, is built for the tests of the night."""
    group, history, old = contained.group, contained.history, contained.group.master()
    with contained.loaded():
        contained.cluster.kill(old)
        assert group.master(but=[old]) != old
        history.wait_for_more(SOME)
        contained.cluster.start_node(old)

    command = [sys.executable, "-m", "spark.audit", "run", "--master", "local[1]", "--nameserver", contained.cluster.nameserver]
    audit = subprocess.run(
        [*command, "--out", tmp_path / "report"], env=os.environ, capture_output=True, text=True, timeout=300, check=False
    )

    assert (audit.returncode, audit.stdout.split(maxsplit=1)[0]) == (0, "PASS"), audit.stdout + audit.stderr[-2000:]
