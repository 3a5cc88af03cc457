"""Compares many records with what their queues say of them: place, size, queue, topic and tag. Pure.

It only ever says that they agree. Where it does not, they may agree all the same: see `dittomq.commitlog.offline.verify`.
"""

import numpy as np
from numpy.typing import NDArray

from dittomq.commitlog.offline.expected_units import NO_QUEUE, Units
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.columnar_codec import Numbers, RecordColumns, Truths, windows
from dittomq.commitlog.records.decoding import Record
from dittomq.commitlog.records.format import decode_properties
from dittomq.commitlog.records.rocketmq_records import INNER_BATCH
from dittomq.delays import SCHEDULE_TOPIC
from dittomq.properties import TAGS, tags_code

LOWEST_HASH = -(1 << 31)
"""Below it a tags code is an address in the queue's extension."""

# Set while a transaction is open, and when it was rolled back.
_NOT_IN_QUEUES = 0x4
_WORD = 8
_WORDS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
_TAGS_NAME = b"TAGS\x01"
_TAGS_WORD = np.frombuffer(_TAGS_NAME, "<u4", 1)[0]
_NAME_END, _PROPERTY_END = 1, 2
# Of longer properties and tags, and of what is not ASCII, only the plain way knows the code.
_PROPERTIES_BYTES = 256
_TAG_BYTES = 32
_ASCII = 0x7F
# With the topic's length.
_LETTERS = 16


def agree(columns: RecordColumns, units: Units, names: "QueueNames", *, sealed: bool) -> Truths:
    """Whether each record is certainly what its unit says: then only the order of the queue's messages is left to be judged."""
    known: Truths = units.queues != NO_QUEUE
    if not known.any():
        return known
    flags = columns.field("system_flag")
    agrees: Truths = known & (units.sizes == columns.ends - columns.starts) & (units.offsets == columns.field("queue_offset"))
    agrees &= (flags & (INNER_BATCH if sealed else INNER_BATCH | _NOT_IN_QUEUES)) == 0
    agrees &= names.match(columns, np.where(known, units.queues, 0))
    agrees &= (units.codes < LOWEST_HASH) | _tags_agree(columns, units.codes)
    return agrees


class QueueNames:
    """The queues by their numbers, as columns that records can be compared with."""

    def __init__(self) -> None:
        self._queues: Numbers = np.zeros(0, np.int64)
        self._bytes: Numbers = np.zeros(0, np.int64)
        self._words: NDArray[np.uint64] = np.zeros((0, 1), np.uint64)

    def learn(self, keys: list[QueueKey]) -> None:
        """Know all of them; those known before come first."""
        new = keys[len(self._queues) :]
        if not new:
            return
        names = [topic.encode() for topic, _ in new]
        width = max(self._words.shape[1], *(-(-len(name) // _WORD) for name in names))
        words = np.frombuffer(b"".join(name.ljust(width * _WORD, b"\0") for name in names), "<u8").reshape(-1, width)
        before = np.pad(self._words, ((0, 0), (0, width - self._words.shape[1])))
        self._words = np.concatenate([before, words])
        self._queues = np.append(self._queues, [queue for _, queue in new])
        self._bytes = np.append(self._bytes, [len(name) for name in names])

    def match(self, columns: RecordColumns, numbers: Numbers) -> Truths:
        """Whether each record names the queue with that number."""
        match: Truths = (self._queues[numbers] == columns.field("queue")) & (self._bytes[numbers] == columns.topic_bytes)
        last = len(columns.view) - _WORD
        for word in range(-(-int(columns.topic_bytes.max(initial=0, where=match)) // _WORD)):
            at = columns.topics + word * _WORD
            said = windows(columns.view, np.minimum(at, last), _WORD).view("<u8").reshape(-1)
            kept = _WORDS[np.minimum(np.maximum(columns.topic_bytes - word * _WORD, 0), _WORD)]
            match &= (said & kept == self._words[numbers, min(word, self._words.shape[1] - 1)]) & (at <= last)
        return match


def samples(columns: RecordColumns, rows: Numbers) -> list[int]:
    """Of these rows one of each queue, as far as its number and the topic's first letters tell queues apart."""
    at = np.minimum(columns.topics[rows] - 1, len(columns.view) - _LETTERS)
    letters, queues = windows(columns.view, at, _LETTERS).tobytes(), columns.field("queue")[rows].tolist()
    first: dict[tuple[int, bytes], int] = {}
    for at_row, (row, queue) in enumerate(zip(rows.tolist(), queues, strict=True)):
        first.setdefault((queue, letters[at_row * _LETTERS : (at_row + 1) * _LETTERS]), row)
    return list(first.values())


def _tags_agree(columns: RecordColumns, codes: Numbers) -> Truths:
    """Whether each record's tag has that code, as `dittomq.properties.tags_code` knows it."""
    view, properties = columns.view, columns.properties
    width = max(1, min(int(columns.properties_bytes.max()), _PROPERTIES_BYTES, len(view)))
    at = np.minimum(properties, len(view) - width)
    near = windows(view, at, width)
    settled = columns.properties_bytes <= width
    agrees: Truths = codes == 0
    letters = near.ravel()
    if ((letters[:-1] == _TAGS_NAME[0]) & (letters[1:] == _TAGS_NAME[1])).any():
        words = np.ndarray((len(near), max(0, width - 3)), "<u4", near, 0, (width, 1))
        rows, places = np.nonzero(words == _TAGS_WORD)
        tag = at[rows] + places + len(_TAGS_NAME)
        found, stops = _hashes(view, tag)
        whole = np.frombuffer(view, np.uint8)
        begins = (tag - len(_TAGS_NAME) == properties[rows]) | (whole[tag - len(_TAGS_NAME) - 1] == _PROPERTY_END)
        sure = begins & (whole[np.minimum(tag, len(view)) - 1] == _NAME_END) & (stops > 0) & (stops < columns.ends[rows])
        sure &= np.bincount(rows, minlength=len(near))[rows] == 1
        agrees[rows] = found == codes[rows]
        settled[rows[~sure]] = False
    for row in np.flatnonzero(~settled).tolist():
        values = decode_properties(bytes(view[int(properties[row]) : int(columns.ends[row])]))
        agrees[row] = tags_code(values.get(TAGS, "")) == codes[row]
    return agrees


def _hashes(view: memoryview, at: Numbers) -> tuple[Numbers, Numbers]:
    """The hash of each text from these indexes on, and the index of the property's end behind it; 0 where that is not certain."""
    whole, last = np.frombuffer(view, np.uint8), len(view) - 1
    code, going, ascii_only = np.zeros(len(at), np.uint32), np.ones(len(at), np.bool_), np.ones(len(at), np.bool_)
    stops = at.copy()
    for step in range(_TAG_BYTES):
        letters = whole[np.minimum(at + step, last)]
        going &= letters != _PROPERTY_END
        if not going.any():
            break
        ascii_only &= ~going | (letters <= _ASCII)
        code = np.where(going, code * np.uint32(31) + letters, code)
        stops += going
    return code.view(np.int32).astype(np.int64), np.where(ascii_only & ~going, stops, 0)


def code_fits(record: Record, code: int) -> bool:
    """Whether a unit may say this code of that message."""
    if record.topic == SCHEDULE_TOPIC and "DELAY" in record.properties:
        return True  # a due time
    return code < LOWEST_HASH or code == tags_code(record.properties.get(TAGS, ""))  # below: an address in the queue's extension
