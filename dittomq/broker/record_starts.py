"""Where the records of a log begin, for whoever knows a byte."""

from dittomq.commitlog.store import Store
from dittomq.offsets import PhysicalOffset

_PIECE_BYTES = 1024 * 1024


def record_start(store: Store, byte: PhysicalOffset) -> PhysicalOffset:
    """Where the record begins that holds this byte; `byte` itself where the log ends or is damaged. Damage is noted. Blocks."""
    looked_at = store.verify(byte, byte + 1)
    if byte >= store.end or store.damage.end_over(byte) is not None:
        return byte
    position = looked_at.start if looked_at.end > looked_at.start else max(store.min_offset, store.segment_of(byte)[0])
    position = PhysicalOffset(max([position, *(behind for _, behind in looked_at.damaged if behind <= byte)]))
    while position < byte and (records := store.read_records(position, byte, _PIECE_BYTES)):
        position = PhysicalOffset(position + len(records))
    return position
