"""The key index, built from the logs of running RocketMQ brokers: byte for byte RocketMQ's own.

Only the names of the files differ: RocketMQ's are the times at which it made them.
"""

import shutil
from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.queues.key_format import HEADER_BYTES, Header, KeySizes
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from tests.vectors.conftest import STORES, Vector
from tests.vectors.opened_stores import NOT_READ

SIZES = KeySizes(slots=500, entries=2_000)
# Killed before it had indexed all of its log.
BEHIND = "killed-5.3.3/master"
# Started again after a kill: RocketMQ then drops files, begins the next one elsewhere, and has one message in it twice.
STARTED_AGAIN = ["diverged-5.3.3/master", "diverged-5.3.3/slave"]
AS_BUILT = [name for name in STORES if name not in {BEHIND, *STARTED_AGAIN, *NOT_READ}]


@pytest.mark.parametrize("vector", AS_BUILT, indirect=True)
def test_it_is_byte_for_byte_rocketmqs(vector: Vector, tmp_path: Path) -> None:
    assert rebuilt(vector, tmp_path / "store") == files(vector.folder)


@pytest.mark.parametrize("vector", [BEHIND], indirect=True)
def test_it_goes_on_where_a_killed_broker_was_behind_its_log(vector: Vector, tmp_path: Path) -> None:
    ours, theirs = rebuilt(vector, tmp_path / "store"), files(vector.folder)

    assert ours[: len(theirs) - 1] == theirs[:-1]
    assert entries(ours[len(theirs) - 1]).startswith(entries(theirs[-1]))
    assert len(ours) > len(theirs)


@pytest.mark.parametrize("vector", ["diverged-5.3.3/master"], indirect=True)
def test_it_equals_a_restarted_brokers_up_to_where_that_was_killed(vector: Vector, tmp_path: Path) -> None:
    assert rebuilt(vector, tmp_path / "store")[:5] == files(vector.folder)[:5]


def rebuilt(vector: Vector, folder: Path) -> list[bytes]:
    """What we make of the log when nothing else is there."""
    log = shutil.copytree(vector.folder / "commitlog", folder / "commitlog")
    options = StoreOptions(segment_bytes=next(log.iterdir()).stat().st_size, min_free_bytes=0, key_sizes=SIZES)
    store = Store.open(OsStorage(folder), options, chance=os_chance(), wall_ms=OsClock().wall_ms())
    store.dispatch(store.end)
    store.close(clean=True)
    return files(folder)


def files(folder: Path) -> list[bytes]:
    """The files of the index, in the order of their names."""
    return [path.read_bytes() for path in sorted((folder / "index").iterdir())]


def entries(data: bytes) -> bytes:
    """Those of one file."""
    return data[SIZES.entry_at(1) : SIZES.entry_at(Header.decode(data[:HEADER_BYTES]).count)]
