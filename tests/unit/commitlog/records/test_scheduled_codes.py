"""What consume queues keep of messages in the schedule topic: when they are due, as RocketMQ reads it."""

import pytest

from dittomq.commitlog.disk.scanning import scan_bytes
from dittomq.commitlog.queues.consume_queue import folder_of
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import UNIT, Host
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.delays import LEVELS, SCHEDULE_TOPIC, level_delay_ms, schedule
from dittomq.message import Draft
from dittomq.properties import encode_properties, tags_code
from tests.support.stores import Machine

STORED_MS = 1_700_000_000_000


def waiting(level: int, tag: str = "") -> Draft:
    return schedule(Draft("orders", 3, 0, 1, b"body", encode_properties(("k",), tag, {}), tags_code(tag) if tag else 0), level)


@pytest.mark.parametrize("count", [1, 400], ids=["one", "many"])
def test_scan_of_scheduled_messages_gives_their_due_times(count: int) -> None:
    log, levels = b"", [1 + at % LEVELS for at in range(count)]
    for at, level in enumerate(levels):
        log += encode_draft(waiting(level, "red" if at % 2 else ""), at // LEVELS, len(log), STORED_MS, host=Host(bytes(4), 1))

    batches, found = scan_bytes(log, 0, 1 << 30, sealed=True)

    codes: dict[int, int] = {entry.start: entry.tags_code for entry in found.entries}
    for batch in batches:
        codes |= {unit[0]: unit[2] for run in batch.runs for unit in UNIT.iter_unpack(run.units)}
    assert [codes[start] for start in sorted(codes)] == [STORED_MS + level_delay_ms(level) for level in levels]


@pytest.mark.parametrize("count", [1, 25], ids=["one", "many"])
def test_appended_scheduled_message_has_its_due_time_in_its_queue(machine: Machine, count: int) -> None:
    store: Store = machine.lead()
    store.append([AppendBatch([waiting(4, "red") for _ in range(count)])], STORED_MS)

    store.sync()
    store.dispatch(store.end)

    [file] = [data for path, data in machine.files().items() if path.startswith(folder_of(SCHEDULE_TOPIC, 3))]
    assert {UNIT.unpack_from(file, 20 * at)[2] for at in range(count)} == {STORED_MS + 30_000}
