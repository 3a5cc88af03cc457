"""Topics of ours that were deleted here and that RocketMQ made again when it had the store open: it counts their messages from 0."""

import random

import pytest

from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.store import Store
from tests.support.foreign_records import foreign_log, put_file, put_log
from tests.support.stores import SMALL, Machine, draft, frame, open_epoch
from tests.unit.commitlog.message_bodies import bodies

SEGMENT = SMALL.segment_bytes


def deleted(machine: Machine, *, messages: int = 20) -> int:
    """A store of ours, closed, whose topic `orders` was deleted when its queue 0 held so many messages: where its log ends."""
    store = machine.lead()
    store.append([frame(*(b"deleted %d" % at for at in range(messages)))], 1)
    store.persist_recovery_point(store.sync(), store.end)
    store.dispatch(store.end)
    store.hide(store.next_offsets("orders"))
    assert store.queue_range("orders", 0) == (messages, messages)
    store.close(clean=True)
    machine.kill()
    return store.end


def made_again(machine: Machine, end: int, count: int) -> list[bytes]:
    """RocketMQ makes the topic again, and counts from 0; returns the bodies."""
    drafts = [draft(body=b"made again %d" % at) for at in range(count)]
    put_log(machine, foreign_log(drafts, end, SEGMENT), end)
    return [each.body for each in drafts]


@pytest.mark.parametrize("count", [3, 30])
def test_it_holds_the_new_messages_only(machine: Machine, count: int) -> None:
    end = deleted(machine)
    theirs = made_again(machine, end, count)
    report = verify(open_on_disk(machine.storage(), "store"))

    store = machine.open()

    assert (report.counts, report.hidden, report.records) == ({}, 20, 20 + count)
    assert bodies(store) == theirs
    assert store.queue_range("orders", 0) == (0, count)
    assert store.minimums() == {}
    open_epoch(store)
    [[placed]] = store.append([frame(b"next")], 9).placed  # type: ignore[misc]
    assert placed.queue_offset == count


@pytest.mark.parametrize("rebuilt", [False, True], ids=["as checkpointed", "rebuilt"])
def test_it_stays_so_after_every_later_start(machine: Machine, rebuilt: bool) -> None:
    theirs = made_again(machine, deleted(machine), 5)
    store = machine.open()
    bodies(store)
    store.close(clean=True)
    machine.kill()
    if rebuilt:
        put_file(machine, "dittomq/checkpoint", None)

    again = machine.open()

    assert bodies(again) == theirs
    assert again.queue_range("orders", 0) == (0, 5)
    report = verify(open_on_disk(machine.storage(), "store"))
    assert (report.counts, report.hidden) == ({}, 20)


def test_an_old_minimum_that_is_said_again_does_not_hide_it(machine: Machine) -> None:
    theirs = made_again(machine, deleted(machine), 5)
    store = machine.open()
    store.hide({("orders", 0): 20})
    assert bodies(store) == theirs
    store.close(clean=True)
    machine.kill()

    again = machine.open()
    again.hide({("orders", 0): 20})

    assert bodies(again) == theirs


def test_topic_deleted_again_is_empty_on_every_replica(machine: Machine) -> None:
    """Even where it held as many messages as before."""
    end = deleted(machine)
    made_again(machine, end, 20)
    master = machine.open()
    assert len(bodies(master)) == 20
    open_epoch(master)
    master.sync()

    minimums = master.next_offsets("orders")
    master.hide(minimums)
    slave = Machine(random.Random(6)).open()
    slave.hide(minimums)
    copy_log(master, slave)

    assert bodies(master) == bodies(slave) == []
    master.append([frame(b"once more")], 99)
    copy_log(master, slave)
    assert bodies(master) == bodies(slave) == [b"once more"]
    assert master.queue_range("orders", 0) == slave.queue_range("orders", 0) == (21, 22)


def test_a_slave_that_knew_the_deletion_shows_the_new_messages_too(machine: Machine) -> None:
    theirs = made_again(machine, deleted(machine), 5)
    master = machine.open()
    other = Machine(random.Random(6))
    slave = other.open()
    slave.hide({("orders", 0): 20})

    copy_log(master, slave)

    assert bodies(slave) == theirs
    slave.sync()
    slave.checkpoint()
    other.kill()
    assert bodies(other.open()) == theirs


def test_messages_before_a_cut_off_visit_return_until_they_are_hidden(machine: Machine) -> None:
    end = deleted(machine)
    made_again(machine, end, 5)
    store = machine.open()
    bodies(store)
    store.checkpoint()

    store.truncate(end)

    assert len(bodies(store)) == 20
    store.hide({("orders", 0): 20})
    assert bodies(store) == []


def copy_log(master: Store, slave: Store) -> None:
    """As the stream does."""
    at = int(slave.end)
    while at < master.end:
        upto = tuple(entry for entry in master.epoch_history if entry.start <= at)
        if upto != slave.epoch_history:
            slave.replace_epoch_history(upto)
        data = master.read_records(at, master.end, 5_000)
        slave.write_chunk(at, data)
        at += len(data)


@pytest.mark.parametrize("stops", ["goes on", "killed"])
def test_messages_that_come_for_the_second_time_behind_a_truncation_stay_deleted(machine: Machine, stops: str) -> None:
    """A slave hears of the deletion before it has them, and is cut before them: they begin with 0, and are no topic made again."""
    deleted(machine)
    master = machine.open()
    other = Machine(random.Random(6))
    slave = other.open()
    slave.hide({("orders", 0): 20})
    copy_log(master, slave)
    assert bodies(slave) == []
    slave.sync()
    slave.checkpoint()
    slave.truncate(0)
    if stops == "killed":
        other.kill()
        slave = other.open()

    copy_log(master, slave)

    assert bodies(slave) == []
    assert slave.minimums() == {("orders", 0): 20}
