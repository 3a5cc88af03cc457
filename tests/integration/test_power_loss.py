"""Power loss under a real process on a real file system: its disk as it is at one moment, without what only the page cache holds."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.mounts import new_image
from tests.support.power import SECTOR, Rebooted, after_power_loss, blocks_of, booted, fast_folder
from tests.support.real_store import filled, numbers_in, reopened
from tests.support.replayable_chance import replayable
from tests.support.store_process import FLUSHED, OPTIONS, fill

pytestmark = pytest.mark.tier("nightly")

IMAGE_BYTES = 64 * 1024 * 1024
UNFLUSHED = 20


TEARS: dict[str, Callable[[random.Random, int], set[int]]] = {
    "nothing but the beginning": lambda chance, count: set(range(chance.randrange(1, count))),
    "all but the beginning": lambda chance, count: set(range(chance.randrange(1, count), count)),
    "all but one sector": lambda chance, count: set(range(count)) - {chance.randrange(count)},
    "all but 4 KiB": lambda chance, count: set(range(count)) - set(range(start := chance.randrange(count - 8), start + 8)),
    "any": lambda chance, count: set(chance.sample(range(count), count // 2)),
}


@pytest.mark.parametrize("name", TEARS)
def test_write_torn_between_sectors_costs_nothing_flushed(tmp_path: Path, name: str) -> None:
    """The rest of it is kept aside."""
    disk, root = tmp_path / "disk", tmp_path / "disk" / "store"
    segment = root / "commitlog" / f"{OPTIONS.segment_bytes:020d}"
    with fast_folder() as memory:
        image = new_image(memory / "image", IMAGE_BYTES // 4)
        with booted(image, disk) as machine:
            store = filled(root)
            while store.ahead.zero():  # its blocks are there from now on
                pass
            store.sync()
            fill(store, range(FLUSHED, FLUSHED + UNFLUSHED))
            store.close(clean=False)
            machine.photograph(memory / "lost")
            written, blocks = segment.read_bytes(), blocks_of(segment)
        first, stop = store.flushed - OPTIONS.segment_bytes, store.end - OPTIONS.segment_bytes
        sectors = range(first // SECTOR, -(-stop // SECTOR))  # the first one holds flushed bytes too, and the disk writes it whole or not
        with (memory / "lost").open("r+b") as lost:
            for number in TEARS[name](replayable(), len(sectors)):
                at = sectors[number] * SECTOR
                lost.seek(blocks.place(at))
                lost.write(written[at : at + SECTOR])

        with after_power_loss(memory / "lost", disk):
            torn = segment.read_bytes()
            assert torn != written
            judge_torn(root, torn)


def judge_torn(root: Path, torn: bytes) -> None:
    """Whole records count; what lies behind the last one of them is told, and kept in a side file."""
    store, log = reopened(root, Rebooted(root))
    numbers, rest = numbers_in(log), torn[store.end - OPTIONS.segment_bytes :].rstrip(b"\0")
    assert numbers == list(range(len(numbers)))
    assert FLUSHED <= len(numbers) <= FLUSHED + UNFLUSHED
    if rest:
        assert store.recovery_truncation is not None
        assert store.recovery_truncation.saved_bytes == len(rest)
        assert (root / store.recovery_truncation.side_file).read_bytes() == rest
    else:
        assert store.recovery_truncation is None
    store.close(clean=False)
