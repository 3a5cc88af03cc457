"""Makes sure of what a start has found: that it is on the disk, and that a stop which looks like a plain kill was one.

After a failed sync Linux calls the pages clean though the disk does not have them, and drops them when it likes: before a start
reads them, or between two reads. The mark of the failure tells the next start, but a disk may refuse that too. Then

    read the log ▶ write what lies behind the recovery point over itself ▶ sync ▶ read it again

and what stands is on the disk, whatever was dropped when. What a plain kill leaves behind the log's end is the beginning of one
write, so the beginning of one record and nothing behind it. Anything else says that pages were dropped, or that the disk changed bytes.
"""

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages, scan_at, scan_singly, skip_damage
from dittomq.commitlog.disk.storage import speaks_of_bytes
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.format import MAX_RECORD_BYTES
from dittomq.commitlog.state.damage_map import DamagedRanges

_SIZE_BYTES = 4


def write_again(log: Log, seals: ChecksumPolicy, damage: DamagedRanges, start: int) -> bool:
    """Durably write the log from `start`, a record's start, over itself; whether all of it but `damage` is still there afterwards.

    Where it is not, the log is to be read anew; what is there then stays.
    """
    log.write_again(start)
    log.sync()
    at = start
    while at < log.end:
        _, found = scan_at(log, seals, at, log.end)
        over = damage.end_over(found.end)
        if found.end == at and over is None:
            return False
        at = found.end if over is None else over
    return True


def has_whole_behind(log: Log, seals: ChecksumPolicy, tail_end: int) -> bool:
    """Whether a whole record of ours, or a mark, lies behind the damage at the log's end, below `tail_end`.

    No kill causes that: what is damaged there may have been acknowledged.
    """
    source, at = ReadablePages(log), log.end
    while seals.at(at).sealed and (at := skip_damage(source, seals, at, tail_end)) < tail_end:
        if at < log.segment_of(at - 1)[1] or scan_at(source, seals, at, tail_end, scanner=scan_singly)[1].end > at:
            return seals.at(at).sealed
    return False


def is_torn(log: Log, tail_end: int) -> bool:
    """Whether what lies behind the log's end, up to its last byte that is not zero, is the beginning of one record, or nothing.

    What the disk does not give may have been a whole one.
    """
    written = tail_end - log.end
    try:
        size = int.from_bytes(log.read(log.end, _SIZE_BYTES, log.stop), "big")
        return written < min(max(size, 1), MAX_RECORD_BYTES) and len(log.read(log.end, written, log.stop)) == written
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return False
