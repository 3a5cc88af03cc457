"""A store whose node is reached by IPv6: its records are longer, and everything else is as ever."""

import random
from dataclasses import replace
from ipaddress import ip_address

import pytest

from dittomq.commitlog.offline.open_store import items, open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.records.format import Host
from dittomq.commitlog.store import Store
from tests.support.foreign_records import put_log, sealed_by_rocketmq
from tests.support.stores import SMALL, Machine, draft, frame, open_epoch, whole_log
from tests.unit.commitlog.message_bodies import bodies

HOST = Host(ip_address("2001:db8::7").packed, 10_911)
SENT = [[b"%d of %d" % (number, count) for number in range(count)] for count in (1, 3, 40, 1, 60)]
ALL = [body for each in SENT for body in each]


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(5), replace(SMALL, host=HOST))


def filled(machine: Machine) -> Store:
    """With frames of one message and of many, over a segment's end."""
    store, sequence = machine.open(), 0
    open_epoch(store)
    for sent in SENT:
        store.append([frame(*sent, producer="p", first=sequence)], 99)
        sequence += len(sent)
    store.sync()
    assert store.end > SMALL.segment_bytes
    return store


def test_after_a_kill_every_record_is_there_and_ours(machine: Machine) -> None:
    log = whole_log(filled(machine))
    machine.kill()

    store = machine.open()

    assert (whole_log(store), store.recovery_truncation, store.damaged) == (log, None, [])
    assert [entry.epoch for entry in store.epoch_history] == [1]
    assert bodies(store) == ALL
    assert store.find_sequence("p", len(ALL) - 1) is not None


def test_every_record_names_the_nodes_address_and_the_store_is_whole(machine: Machine) -> None:
    store = filled(machine)
    store.dispatch(store.end)
    store.close(clean=True)
    machine.kill()

    found = open_on_disk(machine.storage(), "store")
    records = [item.record for item in items(found) if item.record is not None]
    report = verify(open_on_disk(machine.storage(), "store"))

    assert {(record.born_host, record.store_host, record.system_flag) for record in records} == {(HOST, HOST, 0x30)}
    assert (report.whole, report.records, report.counts) == (True, len(ALL), {})


def test_a_slave_takes_them_in_whatever_its_own_address_is(machine: Machine) -> None:
    master = filled(machine)
    slave = Machine(random.Random(6)).open()

    slave.replace_epoch_history(master.epoch_history)
    while slave.written_raw < master.end:
        slave.write_chunk(slave.written_raw, master.read(slave.written_raw, 1_000))

    assert whole_log(slave) == whole_log(master)
    assert bodies(slave) == ALL


def test_what_rocketmq_sealed_behind_a_kill_is_told_from_them(machine: Machine) -> None:
    end = filled(machine).end
    machine.kill()
    theirs = sealed_by_rocketmq(draft(body=b"theirs"), 200, end)
    put_log(machine, theirs, end)

    store = machine.open()

    assert store.end == end + len(theirs)
    assert [(entry.epoch, entry.start) for entry in store.epoch_history] == [(1, 0), (1, end)]
