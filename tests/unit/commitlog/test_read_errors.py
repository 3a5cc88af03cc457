"""Reads that fail for a reason that says nothing of the bytes, as where a process has too many files open: nobody calls them damaged."""

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest
import structlog

from dittomq.broker.repair import Repairer, RepairerParts, RepairSource
from dittomq.broker.retention import RetentionLoop, RetentionLoopParts
from dittomq.broker.retention_pins import PinParts, Pins
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.queues.key_format import KeySizes
from dittomq.commitlog.retention import RetentionRules
from dittomq.commitlog.state.damage_map import DamagedRange
from dittomq.commitlog.store import Store
from dittomq.doors.clock import OsClock
from dittomq.errors import DittoError, NotReady, StorageFailure, StoreOpenFailed
from tests.simulation.loop import SimulatedLoop
from tests.support.inline_lane import InlineLane
from tests.support.stores import Machine, frame, whole_log
from tests.unit.commitlog.bad_pages import OPTIONS, PAGE, BadPages, in_use, opened
from tests.unit.commitlog.queues.key_index_files import TOPIC

SEGMENT = f"commitlog/{0:020d}"
OF_THE_BYTES = [errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.EILSEQ, errno.EREMOTEIO]
OF_SOMETHING_ELSE = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EINTR, errno.EBADF]
LOOKS: dict[str, Callable[[Store], object]] = {
    "verify": lambda store: store.verify(0, store.end),
    "whole leaves": lambda store: store.whole_leaves(0, 4_000),
    "leaf digests": lambda store: store.leaf_digests(0, 4_000),
    "raw bytes": lambda store: store.read(0, 4_000),
    "records": lambda store: store.read_records(0, store.end, 4_000),
    "a queue": lambda store: store.read_queue(TOPIC, 0, 0, 10, 10_000),
    "a sequence": lambda store: store.find_sequence("p", 0),
    "a survey": lambda store: store.survey(0),
    "a drop": lambda store: store.drop_before(store.end),
}


def names(numbers: Sequence[int]) -> list[str]:
    return [errno.errorcode[number] for number in numbers]


def newest_segment(machine: Machine) -> str:
    return max(path for path in machine.files() if path.startswith("commitlog/"))


def refusing(says: int) -> tuple[Machine, Store, BadPages]:
    """A store in use whose disk refuses to be read with that error, but for what begins a segment later."""
    machine, store, door = in_use(replace(OPTIONS, open_files=3))
    [_] = store.append([frame(b"sent", producer="p", first=0)], 9_000).placed
    store.append([frame(*[bytes(3_000)] * 15)], 9_000)
    store.dispatch(store.end)
    store.persist_recovery_point(store.sync(), store.end)
    door.says = says
    for path in machine.files():
        if path.startswith(("commitlog/", "consumequeue/")):
            door.bad[path] = set(range(machine.options.segment_bytes))
    return machine, store, door


@pytest.mark.parametrize("says", OF_SOMETHING_ELSE, ids=names(OF_SOMETHING_ELSE))
@pytest.mark.parametrize("look", LOOKS)
def test_who_cannot_read_now_is_told_why_and_nothing_is_called_damaged(look: str, says: int) -> None:
    _, store, door = refusing(says)

    with pytest.raises(NotReady, match=os.strerror(says)):
        LOOKS[look](store)

    door.bad.clear()
    assert (store.damaged, store.min_offset, store.verify(0, store.end).damaged) == ([], 0, ())
    LOOKS[look](store)


@pytest.mark.parametrize("says", OF_THE_BYTES, ids=names(OF_THE_BYTES))
def test_whatever_a_disk_says_of_bytes_that_it_does_not_give_they_are_damaged(says: int) -> None:
    _, store, door = refusing(says)
    door.bad.clear()
    door.bad[SEGMENT] = {1}

    store.verify(0, store.end)

    [(low, high)] = store.damaged
    assert (low <= PAGE, high >= 2 * PAGE) == (True, True)


def test_queues_get_no_hole_for_records_that_could_not_be_read_when_they_were_built(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, store, door = in_use()
    monkeypatch.setattr("dittomq.commitlog.queues.dispatch.MAX_WAITING_UNITS", 0)
    store.append([frame(b"one", topic="other")], 9_000)
    door.says, door.bad[newest_segment(machine)] = errno.ENOMEM, set(range(4))

    with pytest.raises(StorageFailure, match="Cannot allocate memory"):
        store.dispatch(store.end)

    store.close(clean=False)
    again, _ = opened(machine)
    again.dispatch(again.end)
    assert again.queue_range("other", 0) == (0, 1)


@pytest.mark.parametrize("lose", [Machine.kill, Machine.lose_power])
def test_a_start_that_cannot_read_the_log_now_is_refused_and_truncates_nothing(lose: Callable[[Machine], None]) -> None:
    machine, store, _ = in_use()
    log = whole_log(store)
    lose(machine)
    door = BadPages(machine)
    door.says, door.bad[newest_segment(machine)] = errno.ENOMEM, set(range(4))

    with pytest.raises(StoreOpenFailed, match="Cannot allocate memory"):
        Store.open(cast("Storage", door), OPTIONS, chance=random.Random(1), wall_ms=9_000)

    again = machine.open()
    assert (whole_log(again), again.damaged, again.recovery_truncation) == (log, [], None)


def test_repairer_that_cannot_read_a_suspected_range_looks_again_later() -> None:
    machine, store, door = refusing(errno.EMFILE)
    machine.disk.names.files[SEGMENT].write(memoryview(b"\xff"), 5_000, machine.chance)

    async def nobody() -> Sequence[RepairSource]:
        return []

    async def story() -> list[list[DamagedRange]]:
        lane = InlineLane()
        mender = Repairer(RepairerParts("a/1", store, lane, lane, lane, random.Random(1)), nobody)
        mender.suspect(5_000)
        running = asyncio.create_task(mender.run())
        await asyncio.sleep(5)
        found = [list(store.damaged)]
        door.bad.clear()
        await asyncio.sleep(5)
        found.append(list(store.damaged))
        door.bad[SEGMENT] = set(range(4))
        outcomes = await mender.repair_ranges(store.damaged)
        assert ["Too many open files" in each.problem for each in outcomes] == [True]
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, DittoError):
            await running
        assert running.cancelled()
        return found

    before, after = SimulatedLoop().run_until_complete(story())

    assert before == []
    [(low, high)] = after
    assert low <= 5_000 < high


def test_a_repairer_says_once_that_it_cannot_read_and_once_that_it_can_again() -> None:
    machine, store, door = refusing(errno.EMFILE)

    async def nobody() -> Sequence[RepairSource]:
        return []

    async def story() -> None:
        lane = InlineLane()
        mender = Repairer(RepairerParts("a/1", store, lane, lane, lane, random.Random(1)), nobody)
        mender.suspect(100)
        mender.suspect(machine.options.segment_bytes + 100)
        running = asyncio.create_task(mender.run())
        await asyncio.sleep(20)
        door.says = errno.ENOMEM
        await asyncio.sleep(20)
        door.bad.clear()
        await asyncio.sleep(20)
        running.cancel()

    with structlog.testing.capture_logs() as logged:
        SimulatedLoop().run_until_complete(story())

    assert [each["event"] for each in logged] == ["verification_failed", "verification_failed", "verification_resumed"]
    assert ["Too many open files" in logged[0]["problem"], "Cannot allocate memory" in logged[1]["problem"]] == [True, True]


def test_retention_that_cannot_read_now_lives_on_and_drops_later() -> None:
    machine, store, door = refusing(errno.EMFILE)
    clock, lane = OsClock(), InlineLane()
    pins = Pins(PinParts("a/1", machine.beside(), store, lane, clock, machine.chance))
    retaining = RetentionLoop(RetentionLoopParts("a/1", store, lane, clock, pins), RetentionRules(max_used_percent=1), 1.0, list)
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 1_000_000

    asyncio.run(retaining.step())
    assert store.min_offset == 0

    door.bad.clear()
    asyncio.run(retaining.step())
    assert store.min_offset > 0


def test_key_index_file_that_cannot_be_opened_goes_with_a_later_drop() -> None:
    _, store, door = in_use(replace(OPTIONS, key_sizes=KeySizes(slots=7, entries=30), open_files=3), messages=400)
    door.refused, door.says = "index/", errno.EMFILE
    store.drop_before(2 * store.segment_bytes)
    assert store.min_offset > 0
