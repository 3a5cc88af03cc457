"""Stores that went through something, and what `verify` says of them in either of its ways."""

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import items, open_on_disk
from dittomq.commitlog.offline.stats import QueueTally
from dittomq.commitlog.offline.verify import Report, verify
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.columnar_codec import Numbers, RecordColumns
from dittomq.commitlog.records.decoding import Record
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import CRC_BYTES, MAGIC_MARK, UNIT, UNIT_BYTES, Host, sealed_crc
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.message import Draft
from dittomq.properties import encode_properties, tags_code
from tests.support.foreign_records import foreign_log, foreign_record
from tests.support.stores import open_epoch

HOST = Host(bytes((127, 0, 0, 1)), 10911)
OPTIONS = StoreOptions(segment_bytes=128 * 1024, queue_file_units=60, min_free_bytes=0)
TOPICS = ["orders", "a", "eight-by", "a-topic-with-a-name-of-forty-two-letters-xx", "訂單"]
TAG_NAMES = ["", "", "", "a", "express", "Ärger", "訂單", "x" * 40]


class Heard:
    """Counts as a listener is told, in whichever way."""

    def __init__(self) -> None:
        self.counts: dict[QueueKey, QueueTally] = {}
        self.at_once = 0

    def record(self, record: Record) -> None:
        self._tally((record.topic, record.queue), record.queue_offset, record.store_ms).add(record)

    def records(self, key: QueueKey, columns: RecordColumns, rows: Numbers) -> None:
        self.at_once += len(rows)
        first = int(rows[0])
        self._tally(key, int(columns.field("queue_offset")[first]), int(columns.field("store_ms")[first])).add_all(columns, rows)

    def _tally(self, key: QueueKey, offset: int, store_ms: int) -> QueueTally:
        return self.counts.setdefault(key, QueueTally(offset, store_ms, store_ms))


def verified_alike(folder: Path) -> tuple[Report, Heard]:
    """The report and what a listener heard, after both were seen to be the same either way."""
    reports, listeners = [], []
    for one_by_one in (True, False):
        listeners.append(Heard())
        reports.append(verify(open_on_disk(OsStorage(folder), "here"), None, listeners[-1], one_by_one=one_by_one))
    plainly, at_once = reports
    assert at_once == plainly
    assert list(at_once.counts) == list(plainly.counts)
    assert listeners[1].counts == listeners[0].counts
    return at_once, listeners[1]


def filled(chance: random.Random, folder: Path) -> Store:
    """Some hundred records of several topics, with and without tags, some queues behind the log, some topics deleted or made again.

    In every other store the first of them are RocketMQ's.
    """
    if chance.random() < 0.5:
        lay_foreign_log(chance, folder)
    store = Store.open(OsStorage(folder), OPTIONS, chance=chance, wall_ms=1_000)
    store.dispatch(store.end)
    open_epoch(store)
    for at in range(chance.randrange(20, 120)):
        drafts = some_drafts(chance)
        store.append([AppendBatch(drafts)], at)
        if chance.random() < 0.3:
            store.dispatch(store.end)
        if chance.random() < 0.03:
            lows = store.next_offsets(drafts[0].topic)
            store.hide({key: chance.randrange(low + 1) for key, low in lows.items()})
        if chance.random() < 0.02:
            open_epoch(store)
    if chance.random() < 0.8:
        store.dispatch(store.end)
    return store


def some_drafts(chance: random.Random) -> list[Draft]:
    """Of one queue."""
    topic, queue, tag = chance.choice(TOPICS), chance.randrange(3), chance.choice(TAG_NAMES)
    drafts = []
    for _ in range(chance.randrange(1, 9)):
        body = chance.randbytes(chance.choice((0, 1, 40, 300, 1_000, 12_000)))
        keys = ["key"] * chance.randrange(2)
        drafts.append(Draft(topic, queue, 0, 1, body, encode_properties(keys, tag, {"of": "TAGS"}), tags_code(tag) if tag else 0))
    return drafts


def lay_foreign_log(chance: random.Random, folder: Path) -> None:
    """As a running RocketMQ leaves it: no seals, and records of transactions that no queue has."""
    (folder / "commitlog").mkdir(parents=True)
    drafts = [draft for _ in range(chance.randrange(5, 60)) for draft in some_drafts(chance)]
    flags = [chance.choice([0] * 20 + [4, 8, 12]) for _ in drafts]
    data = foreign_log(drafts, 0, OPTIONS.segment_bytes, system_flags=flags)
    for start in range(0, len(data), OPTIONS.segment_bytes):
        with (folder / "commitlog" / f"{start:020d}").open("wb") as file:
            file.write(data[start : start + OPTIONS.segment_bytes])
            file.truncate(OPTIONS.segment_bytes)


def put(path: Path, data: bytes, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[: max(0, path.stat().st_size - at)])


def records_of(folder: Path) -> list[Record]:
    return [item.record for item in items(open_on_disk(OsStorage(folder), "here")) if item.record is not None]


def flip_a_bit(chance: random.Random, path: Path) -> None:
    at = chance.randrange(path.stat().st_size)
    put(path, bytes((path.read_bytes()[at] ^ 1 << chance.randrange(8),)), at)


def zero_a_stretch(chance: random.Random, path: Path) -> None:
    put(path, bytes(chance.choice((4, 20, 512, 4_096))), chance.randrange(path.stat().st_size) // 4 * 4)


def copy_a_stretch(chance: random.Random, path: Path) -> None:
    data, length = path.read_bytes(), chance.choice((20, 40, 512, 3_000))
    start = chance.randrange(len(data)) // 20 * 20
    put(path, data[start : start + length], chance.randrange(len(data)) // 20 * 20)


def forge_a_record(chance: random.Random, folder: Path) -> None:
    """Put a whole record of the same size in another's place: another number, queue, topic, tag or body CRC."""
    record = chance.choice(records_of(folder))
    topic = chance.choice([record.topic, *(each for each in TOPICS if len(each.encode()) == len(record.topic.encode()))])
    tag = record.properties.get("TAGS", "")
    written = [f"{name}\x01{value}\x02" for name, value in record.properties.items() if name not in {"__CRC32#", "TAGS"}]
    written += [f"TAGS\x01{chance.choice([tag, tag[::-1]])}\x02"] if tag else []
    offset = chance.choice([record.queue_offset, 0, record.queue_offset + 1, record.queue_offset - 1])
    draft = Draft(topic, chance.choice([record.queue, 0, 7]), 0, 1, record.body, "".join(written).encode(), 0)
    made = encode_draft(draft, offset, record.physical_offset, record.store_ms, host=HOST)
    if chance.random() < 0.3:
        made = made[:8] + chance.randbytes(4) + made[12:-CRC_BYTES]
        made += sealed_crc(zlib.crc32(made))
    if "__CRC32#" not in record.properties or chance.random() < 0.2:
        made = foreign_record(draft, offset, record.physical_offset, record.store_ms, system_flag=chance.choice([0, 0, 4, 8, 12, 0x80]))
    if len(made) != record.size:
        return
    segment = OPTIONS.segment_bytes if (folder / "dittomq").exists() else next((folder / "commitlog").iterdir()).stat().st_size
    put(folder / "commitlog" / f"{record.physical_offset // segment * segment:020d}", made, record.physical_offset % segment)


def tear(chance: random.Random, folder: Path) -> None:
    """Half a record, or a mark in the wrong place, behind the log's end."""
    last = records_of(folder)[-1]
    end, path = last.physical_offset + last.size, max((folder / "commitlog").iterdir())
    draft = Draft("orders", 0, 0, 1, bytes(500), b"", 0)
    torn = encode_draft(draft, chance.randrange(9), end, 1, host=HOST)[: chance.randrange(1, 700)]
    put(path, chance.choice([torn, struct.pack(">iI", 900, MAGIC_MARK), b"\1"]), end - int(path.name))


def point_elsewhere(chance: random.Random, path: Path) -> None:
    """A unit of a queue names another place, size or code."""
    data = path.read_bytes()
    at = chance.randrange(len(data) // UNIT_BYTES) * UNIT_BYTES
    position, size, code = UNIT.unpack_from(data, at)
    changes = [(0, 0, 0), (0, 0, 0), (1 << 60, size, code), (0, size, code), (position, 0x7FFFFFFF, 0)]
    changes += [(position, size ^ 1, code), (position, size, -(1 << 40)), (position, size, 97)]
    put(path, UNIT.pack(*chance.choice(changes)), at)


def damage(chance: random.Random, folder: Path) -> list[str]:
    """Several damages of any kind; their names."""
    done = []
    for _ in range(chance.randrange(6)):
        logs, queues = sorted((folder / "commitlog").iterdir()), sorted(folder.glob("consumequeue/*/*/*"))
        at_a_file: Callable[[random.Random, Path], None] = chance.choice([flip_a_bit, zero_a_stretch, copy_a_stretch])
        to_the_store: Callable[[random.Random, Path], None] = chance.choice([forge_a_record, tear])
        kind = chance.randrange(5)
        if kind == 0 and queues:
            chance.choice(queues).unlink()
        elif kind == 1 and queues:
            point_elsewhere(chance, chance.choice(queues))
        elif kind == 2 and queues:
            at_a_file(chance, chance.choice(queues))
        elif kind == 3:
            at_a_file(chance, chance.choice(logs))
        elif records_of(folder):
            to_the_store(chance, folder)
        done.append(f"{kind} {at_a_file.__name__} {to_the_store.__name__}")
    return done
