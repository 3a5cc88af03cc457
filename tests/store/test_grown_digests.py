"""Digests for heartbeats: of what was digested before, only what has changed is read again."""

import random
from dataclasses import replace

from dittomq.commitlog.state.damaged import DamagedRange
from dittomq.commitlog.store import Store
from tests.support.stores import SMALL, Machine, frame, open_epoch

MIB = 1024 * 1024
SEGMENT = 4 * MIB


def machine() -> Machine:
    return Machine(random.Random(3), replace(SMALL, segment_bytes=SEGMENT))


def opened() -> tuple[Machine, Store]:
    made = machine()
    store = made.open()
    open_epoch(store)
    return made, store


def append(store: Store, chance: random.Random) -> None:
    store.append([frame(chance.randbytes(chance.randrange(700_000)))], 1)
    store.sync()


def flip(made: Machine, position: int) -> None:
    """Change a byte on the disk of a store in use."""
    inode = made.disk.names.files[f"commitlog/{position - position % SEGMENT:020d}"]
    byte = inode.read(1, position % SEGMENT)[0]
    inode.write(memoryview(bytes([byte ^ 1])), position % SEGMENT, made.chance)
    inode.sync()


def test_the_digest_of_a_range_that_grows_is_that_of_all_its_bytes_whatever_was_asked_for_before() -> None:
    chance = random.Random(11)
    _, store = opened()

    for _ in range(60):
        append(store, chance)
        for _ in range(3):
            start, end = store.segment_of(chance.randrange(store.end))
            upto = min(end, store.end) if chance.random() < 0.5 else chance.randrange(start + 1, min(end, store.end) + 1)
            assert store.grown_digest(start, upto) == store.chain_digest(start, upto)


def test_leaves_that_are_whole_are_read_once() -> None:
    made, store = opened()
    chance = random.Random(5)
    while store.end < 3 * MIB:
        append(store, chance)
    before = store.grown_digest(0, store.end)

    flip(made, MIB // 2)

    assert store.grown_digest(0, store.end) == before != store.chain_digest(0, store.end)


def test_after_a_cut_what_is_written_in_its_place_is_digested() -> None:
    _, store = opened()
    chance = random.Random(5)
    while store.end < MIB // 2:
        append(store, chance)
    border = store.end
    while store.end < 3 * MIB:
        append(store, chance)
    assert store.grown_digest(0, store.end) is not None

    store.cut(border)
    while store.end < 3 * MIB:
        append(store, chance)

    assert store.grown_digest(0, store.end) == store.chain_digest(0, store.end)


def test_what_was_mended_is_digested_anew_and_what_is_damaged_not_at_all() -> None:
    made, store = opened()
    chance = random.Random(5)
    while store.end < 3 * MIB:
        append(store, chance)
    whole = store.grown_digest(0, store.end)
    flip(made, MIB // 2)
    [(low, high)] = store.verify(MIB // 2, MIB // 2 + 1).damaged
    assert store.grown_digest(0, store.end) is None
    assert store.damaged == [DamagedRange(low, high)]

    flip(made, MIB // 2)
    assert store.heal(low)

    assert store.grown_digest(0, store.end) == whole == store.chain_digest(0, store.end)
