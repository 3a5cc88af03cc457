"""What a slave's store does with a chunk - verify, write, build the queues - many records at once, against a step of Python for each.

Both write the same bytes into the same file, whose pages were touched lately. What counts is processor time.
"""

import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path

from bench.ratios import Figure
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import Scanner, scan_bytes, scan_singly
from dittomq.commitlog.disk.segment import path_of
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues.consume_queue import QueueIndex
from dittomq.commitlog.queues.dispatch import Dispatch
from dittomq.commitlog.queues.indexes import DerivedIndexes
from dittomq.commitlog.queues.key_format import KeyMark
from dittomq.commitlog.queues.key_index import KeyIndex
from dittomq.commitlog.queues.producer_state import Producers
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.replica_append import ReplicaAppender
from dittomq.epoch_history import EpochEntry
from dittomq.message import Draft
from dittomq.offsets import Epoch, PhysicalOffset

_MIB = 1024 * 1024
_BODY_BYTES = 1024
_BATCH = 256
_QUEUES = 8
_BORN_MS = 1_700_000_000_000
_EPOCH_HISTORY = (EpochEntry(Epoch(1), 0, 1, PhysicalOffset(0)),)


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Chunks as a catch-up, a busy master and a single caller send them."""
    pairs, records = (1, 2 * _BATCH) if quick else (9, 64 * _BATCH)
    made = _records(records)
    sizes = (
        (_MIB // len(made[0]), "slave, chunks of 1 MiB", 2.0),
        (_BATCH, "slave, chunks of 256 × 1 KiB", None),
        (1, "slave, chunks of 1 KiB", None),
    )
    return [_figure(folder / str(at), (made, at), pairs, (name, goal)) for at, name, goal in sizes]


def _figure(folder: Path, log: tuple[Sequence[bytes], int], pairs: int, what: tuple[str, float | None]) -> Figure:
    records, at_once = log
    chunks = [b"".join(records[at : at + at_once]) for at in range(0, len(records), at_once)]
    slave = _SlaveStore(folder)
    ours, floor = [], []
    for pair in range(pairs + 1):
        order = (scan_bytes, scan_singly) if pair % 2 else (scan_singly, scan_bytes)
        rates = {scanner: len(records) / slave.receive(chunks, scanner) / 1_000 for scanner in order}
        if pair > 0:  # the first one makes the files
            ours.append(rates[scan_bytes])
            floor.append(rates[scan_singly])
    return Figure(what[0], "k/s of processor time", ours, floor, at_least=what[1])


class _SlaveStore:
    """The parts of a slave's store that a chunk passes through."""

    def __init__(self, folder: Path) -> None:
        self._storage = OsStorage(folder)
        for name in ("", "dittomq", "commitlog"):
            self._storage.make_folder(name)
        with contextlib.closing(self._storage.open(path_of(0), create=True)) as file:
            file.truncate(StoreOptions().segment_bytes)

    def receive(self, chunks: Sequence[bytes], scanner: Scanner) -> float:
        """Write the chunks from the beginning on, over what is there; the seconds of processor time until all queues are built."""
        options = StoreOptions()
        files = OpenFiles(self._storage, options.open_files)
        log = Log(SegmentMaker(self._storage, options.segment_bytes), files, [0])
        seals, index = ChecksumPolicy(_EPOCH_HISTORY), QueueIndex(self._storage, files, options.queue_file_units, options.segment_bytes)
        keys = KeyIndex(self._storage, files, KeyMark(options.key_sizes), None)
        derived = DerivedIndexes(index, Producers(), Dispatch(log, seals, index, keys, applied=0), 0)
        receiver = ReplicaAppender(log, seals, derived, "this node", scan=scanner)
        began = time.process_time()
        for chunk in chunks:
            derived.dispatch.run(receiver.write(log.end, chunk))
        seconds = time.process_time() - began
        assert derived.dispatch.applied == sum(map(len, chunks)), "all queues are built"
        files.close()
        return seconds


def _records(count: int) -> list[bytes]:
    """Records of one producer in batches, each for one queue, without keys."""
    chance, host = random.Random(1), StoreOptions().host
    bodies = [chance.randbytes(_BODY_BYTES) for _ in range(1_024)]
    made: list[bytes] = []
    position = 0
    for at in range(count):
        batch, within = divmod(at, _BATCH)
        identity = b"PID\x015d1f6a0c7b3e4f7e8a9b0c1d2e3f4a5b\x02SEQ\x01%d\x02" % at
        draft = Draft("bench", batch % _QUEUES, 0, _BORN_MS, bodies[at % len(bodies)], identity, 0)
        made.append(encode_draft(draft, batch // _QUEUES * _BATCH + within, position, _BORN_MS, host=host))
        position += len(made[-1])
    return made
