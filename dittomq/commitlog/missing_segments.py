"""A follower whose disk lost segments of its log, or the ends of some: what was durable in them becomes damage, which any copy gives back.

    note what is gone, durably ▶ make the files, zeros up to their full size, and sync them ▶ sync their names

All of it counts as unread, so a master leaps over its numbers. What is not known to have been durable ends the log. The replica draws a
new incarnation before: it lacks bytes that it acknowledged. Where no whole segment is left nothing is made: another disk is mounted there,
or none.
"""

import contextlib

from dittomq.commitlog import log_start_state
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages, scan_at
from dittomq.commitlog.disk.segment import FOLDER, path_of, sizes_of
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.state_file import CorruptStateFile
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.rocketmq_records import NotRead
from dittomq.commitlog.state import damage_map, epoch_history_file, recovery_point
from dittomq.commitlog.state.damage_map import DamageMap
from dittomq.commitlog.state.replica import OwnReplica


class MissingSegments:
    """One start's. May be repeated from any point."""

    def __init__(self, storage: Storage, files: OpenFiles, maker: SegmentMaker, name: str, *, replica: OwnReplica) -> None:
        self._storage = storage
        self._files = files
        self._maker = maker
        self._name = name
        self._replica = replica
        self._segment_bytes = maker.segment_bytes

    def run(self, register: DamageMap, notes: list[str]) -> DamageMap:
        """Let every segment have its full size; the register with what is gone. Changes nothing where `check_sizes` knows better."""
        sizes, flushed = self._sizes(), self._flushed()
        segment_bytes = self._segment_bytes
        if segment_bytes not in sizes.values() or any(start % segment_bytes or size > segment_bytes for start, size in sizes.items()):
            return register
        stop = max(flushed, max(sizes) + 1)
        short = [start for start in range(min(sizes), stop, segment_bytes) if sizes.get(start, 0) < segment_bytes]
        for start in short:
            gone, end = self._whole_end(start, min(start + sizes.get(start, 0), flushed)), min(start + segment_bytes, flushed)
            if gone < end:
                register = register.with_unread(gone, end, segment_bytes)
                what = "is cut short" if start in sizes else "is missing"
                notes.append(f"{path_of(start)} {what}: bytes {gone:,} to {end:,} are fetched from other copies")
        if short:
            self._replica.draw_incarnation()
            damage_map.save(self._storage, register)
            for start in short:
                with contextlib.closing(self._storage.open(path_of(start), create=True)) as file:
                    file.truncate(segment_bytes)
                    file.fdatasync()
            self._storage.sync_folder(FOLDER)
        return register

    def _sizes(self) -> dict[int, int]:
        """Of the segments that are there and count."""
        begin = log_start_state.load(self._storage).min_offset
        return {start: size for start, size in sizes_of(self._storage, self._name).items() if start >= begin}

    def _flushed(self) -> int:
        """How far the log was durable, as far as anybody knows."""
        mark = held = None
        with contextlib.suppress(CorruptStateFile):
            mark = recovery_point.load(self._storage)
        with contextlib.suppress(CorruptStateFile):
            held = index_checkpoint.load(self._storage)
        return max(mark.flushed if mark else 0, held.end if held else 0)

    def _whole_end(self, start: int, stop: int) -> int:
        """Where the whole records end that the segment begins with."""
        source, seals = ReadablePages(Log(self._maker, self._files, [start])), ChecksumPolicy(epoch_history_file.load(self._storage))
        at = start
        while at < stop:
            try:
                _, scan = scan_at(source, seals, at, stop)
            except NotRead:
                break
            if scan.problem or scan.end == at:
                return scan.end
            at = scan.end
        return at
