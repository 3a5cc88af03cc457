"""Appends through the writer that are never synced, against a bare loop that only builds the same records.

The loop is what anybody would write: a header by `struct`, both checksums by `zlib`, the parts joined. It keeps no position of a queue
but the next one, knows no topic but one, checks nothing and writes nothing.
"""

import asyncio
import shutil
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.ratios import Figure
from bench.store.stores import BORN_MS, frames, lead, leader_of, open_store
from dittomq.commitlog.store import AppendBatch

_HEADER = struct.Struct(">iIIiiqqiq4siq4siiqi")
_MAGIC = 0xDAA320A7
_ADDRESS, _PORT = bytes((127, 0, 0, 1)), 10911
_CRC_NAME = b"__CRC32#\x01"
_CRC_BYTES = 20
_FIXED_BYTES = 91
_TOPIC = b"bench"


def measure(folder: Path, quick: bool) -> list[Figure]:
    """As many batches under way as a busy master has."""
    pairs, batches = (1, 8) if quick else (7, 448)
    made = frames(batches + 1)
    thousands = batches * len(made[0].drafts) / 1000
    ours, floor = [], []
    for pair in range(pairs + 1):
        seconds = _append(folder / "store", made)
        began = time.perf_counter()
        for frame in made[1:]:
            build(frame, 0)
        bare = time.perf_counter() - began
        if pair > 0 or pairs == 1:  # the first one warms up
            ours.append(thousands / seconds)
            floor.append(thousands / bare)
    return [Figure("append, 8 × 256 under way, in memory", "k msg/s", ours, floor, at_least=0.6)]


def build(frame: AppendBatch, position: int) -> bytes:
    """The records of a batch."""
    parts = []
    for offset, draft in enumerate(frame.drafts):
        body = draft.body
        properties_bytes = len(draft.properties) + _CRC_BYTES
        size = _FIXED_BYTES + len(body) + len(_TOPIC) + properties_bytes
        head = _HEADER.pack(
            size, _MAGIC, zlib.crc32(body) & 0x7FFFFFFF, draft.queue, draft.flag, offset, position, 0,
            draft.born_ms, _ADDRESS, _PORT, BORN_MS, _ADDRESS, _PORT, 0, 0, len(body),
        )  # fmt: skip
        record = b"".join((head, body, bytes((len(_TOPIC),)), _TOPIC, struct.pack(">h", properties_bytes), draft.properties))
        crc = zlib.crc32(record) & 0x7FFFFFFF
        parts.append(record + _CRC_NAME + (b"%010d" % crc)[::-1] + b"\x02")
        position += size
    return b"".join(parts)


def _append(folder: Path, made: Sequence[AppendBatch]) -> float:
    """The seconds for all batches but the first, which makes the segment and the queues' files."""
    store = open_store(folder)
    lead(store)

    async def run() -> float:
        async with leader_of(store, syncs=False) as leader:
            await leader.publish(made[:1], 1)
            return await leader.publish(made[1:], 8)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seconds = runner.run(run())
    store.close(clean=False)
    shutil.rmtree(folder)
    return seconds
