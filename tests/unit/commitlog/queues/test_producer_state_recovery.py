"""A master, a slave, a rebuild from the log and a start from a snapshot remember the same of every producer, over days and forgetting."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.queues import producer_state
from dittomq.commitlog.records.batch_index import DAY_MS
from dittomq.commitlog.records.bulk import LEAST_MESSAGES
from dittomq.commitlog.store import Store
from dittomq.errors import UnknownProducerId
from tests.support.stores import SMALL, Machine, frame, open_epoch, places, whole_log

OPTIONS = replace(SMALL, segment_bytes=128 * 1024)  # most chunks hold enough records to be taken in together
FEW = 5


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", FEW)


def machine(seed: int) -> Machine:
    return Machine(random.Random(seed), OPTIONS)


def busy(machine: Machine) -> Store:
    """A store of weeks, in which producers come, pause for days, go on or come back as new ones; it was checkpointed on the way."""
    store, chance, now_ms = machine.open(), machine.chance, 20_000 * DAY_MS
    open_epoch(store)
    following: dict[str, int] = {}
    for turn in range(60):
        now_ms += chance.choice((0, DAY_MS // 3, DAY_MS // 3, 3 * DAY_MS, 9 * DAY_MS if turn % 20 == 19 else 0))
        name = f"{chance.choice('abcdefgh')}{chance.choice((0, 0, turn))}"
        bodies = [b"body"] * chance.choice((1, 3, LEAST_MESSAGES, 120))
        [answer] = store.append([frame(*bodies, producer=name, first=following.get(name, 0))], now_ms).placed
        if not isinstance(answer, UnknownProducerId):
            following[name] = following.get(name, 0) + len(places(answer))
        if turn == 30:
            store.sync()
            store.checkpoint()
    store.sync()
    return store


def remembered(machine: Machine, store: Store) -> bytes:
    """The snapshot that a checkpoint leaves."""
    store.dispatch(store.end)
    store.checkpoint()
    found = state_file.load(machine.beside(), "producers", b"PROD")
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(4))
def test_every_replica_remembers_the_same_of_producers(seed: int) -> None:
    first, second = machine(seed), machine(seed + 100)
    master, slave = busy(first), second.open()
    log = whole_log(master)
    slave.replace_epoch_history(master.epoch_history)
    while slave.written_raw < len(log):
        at = slave.written_raw
        _, segment_end = slave.segment_of(at)
        slave.write_chunk(at, log[at : min(segment_end, at + second.chance.randrange(1, 100_000))])
    slave.sync()

    expected = remembered(first, master)
    assert remembered(second, slave) == expected
    first.kill()
    assert remembered(first, first.open()) == expected
    first.kill()
    del first.disk.names.files["dittomq/producers"]
    assert remembered(first, first.open()) == expected


@pytest.mark.parametrize("seed", range(4))
def test_from_a_snapshot_in_the_middle_of_the_log_the_same_is_remembered(seed: int) -> None:
    first, second = machine(seed), machine(seed)

    busy(first).sync()
    first.kill()

    assert remembered(first, first.open()) == remembered(second, busy(second))
