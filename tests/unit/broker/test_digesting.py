"""Digests of ranges, a slice at a time: those of all their bytes, or none."""

import asyncio
import random
from dataclasses import replace

from dittomq.broker.digesting import digest_of
from dittomq.commitlog.state.damage_map import DamagedRange
from dittomq.commitlog.store import Store
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangeDigest
from tests.support.inline_lane import InlineLane
from tests.support.stores import SMALL, Machine, chain_digest, frame

MIB = 1024 * 1024
SEGMENT = 24 * MIB
SEED = 5


def opened(size: int = 20 * MIB) -> tuple[Machine, Store]:
    """A store of one segment that holds about so much."""
    made = Machine(random.Random(SEED), replace(SMALL, segment_bytes=SEGMENT))
    store = made.lead()
    while store.end < size:
        store.append([frame(made.chance.randbytes(made.chance.randrange(700_000)))], 1)
    store.sync()
    return made, store


def digest(store: Store, start: int, end: int) -> RangeDigest | None:
    return asyncio.run(digest_of(store, InlineLane(), start, end))


def flip(made: Machine, position: int) -> None:
    """Change a byte on the disk of a store in use."""
    inode = made.disk.names.files["commitlog/" + "0" * 20]
    byte = inode.read(1, position)[0]
    inode.write(memoryview(bytes([byte ^ 1])), position, made.chance)
    inode.sync()


def test_slices_make_the_digest_that_the_whole_range_has_wherever_it_begins_and_ends() -> None:
    _, store = opened()
    chance = random.Random(SEED)

    for _ in range(12):
        start = chance.randrange(store.end)
        end = chance.randrange(start, store.end) + 1
        assert digest(store, start, end) == RangeDigest(PhysicalOffset(start), PhysicalOffset(end), chain_digest(store, start, end))


def test_what_is_not_all_here_has_no_digest() -> None:
    _, store = opened(MIB)

    assert digest(store, 0, store.end + 1) is None
    assert digest(store, 40, 40) is None
    store.truncate(0)
    assert digest(store, 0, MIB // 2) is None


def test_what_is_damaged_has_no_digest_until_it_is_repaired() -> None:
    made, store = opened()
    whole = digest(store, 0, store.end)
    flip(made, 17 * MIB)
    assert digest(store, 0, store.end) not in (whole, None)
    [(low, high)] = store.verify(17 * MIB, 17 * MIB + 1).damaged
    assert digest(store, 0, store.end) is None
    assert store.damaged == [DamagedRange(low, high)]
    assert digest(store, 0, low) is not None

    flip(made, 17 * MIB)
    assert store.salvage(low)

    assert digest(store, 0, store.end) == whole
