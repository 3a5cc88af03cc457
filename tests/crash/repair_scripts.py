"""Stories of the sweep in which bytes rot, or never came, and are mended."""

from dittomq.commitlog.records.format import scan
from dittomq.epoch_history import EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from tests.crash.actor import Actor
from tests.crash.script_setups import CHUNK_BYTES, master_log, several_segments
from tests.support.stores import SMALL


def with_rot(actor: Actor) -> None:
    """Records rotted in a segment that was closed long ago, in the checkpoint's part and behind it."""
    several_segments(actor)
    for number in (3, 4, 9, 22):
        actor.rot(*_records(actor.promises.log)[number])


def mends(actor: Actor) -> None:
    actor.find_rot()
    actor.append(2)
    actor.repair()
    actor.append(3, producer=True)
    actor.dispatch()
    actor.checkpoint()
    actor.append(1)


def starts_and_mends(actor: Actor) -> None:
    actor.open()
    actor.dispatch()
    actor.checkpoint()
    actor.find_rot()
    actor.repair()
    actor.epoch()
    actor.append(2)


def with_rot_and_power_lost(actor: Actor) -> None:
    with_rot(actor)
    actor.append(5)
    actor.loses_power()


def receives_holes(actor: Actor) -> None:
    """Holes in a slave's log: one that is dispatched over, whose records have no keys; one that fills the segment; one above the end."""
    log = master_log()
    records = _records(log)
    holes = [records[4], (records[17][0], SMALL.segment_bytes), (records[30][0], records[31][1])]
    actor.open()
    actor.adopt((EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)),))
    at = 0
    for start, end in holes:
        _receive_upto(actor, log, at, start)
        actor.skip_range(log[start:end])
        at = end
        if start == holes[0][0]:
            _receive_upto(actor, log, at, records[8][1])
            at = records[8][1]
            actor.dispatch()
            actor.checkpoint()
        actor.sync()
    _receive_upto(actor, log, at, records[36][1])
    actor.mark()
    actor.repair()
    actor.sync()
    actor.dispatch()
    _receive_upto(actor, log, records[36][1], records[-3][0])
    actor.mark()
    actor.skip_range(log[records[-3][0] : records[-2][1]])
    _receive_upto(actor, log, records[-2][1], len(log))
    actor.cut(3)
    _receive_upto(actor, log, records[-3][0], len(log))
    actor.sync()


def _records(log: bytes) -> list[tuple[int, int]]:
    """Where each message of a log begins and ends."""
    size, found = SMALL.segment_bytes, []
    for base in range(0, len(log), size):
        found += [(entry.start, entry.end) for entry in scan(log[base : base + size], base, base + size).entries if entry.queue >= 0]
    return found


def _receive_upto(actor: Actor, log: bytes, start: int, end: int) -> None:
    while start < end:
        stop = min(start + CHUNK_BYTES, start - start % SMALL.segment_bytes + SMALL.segment_bytes, end)
        actor.receive(log[start:stop])
        start = stop
