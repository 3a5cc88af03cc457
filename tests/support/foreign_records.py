"""Records as RocketMQ writes them, and what it leaves beside a log of them."""

from collections.abc import Sequence
from dataclasses import replace

from dittomq.commitlog.records.decoding import decode
from dittomq.commitlog.records.encoding import encode, encode_draft
from dittomq.commitlog.records.format import CRC_BYTES, Host, mark
from dittomq.commitlog.records.rocketmq_records import in_queues
from dittomq.message import Draft
from tests.support.stores import Machine

HOST = Host(bytes((10, 0, 0, 7)), 10911)


def foreign_record(draft: Draft, queue_offset: int, position: int, store_ms: int = 5, *, system_flag: int = 0) -> bytes:
    """A whole record that nothing seals."""
    ours = decode(encode_draft(draft, queue_offset, position, store_ms, host=HOST), position)
    return encode(replace(ours, system_flag=system_flag, property_bytes=ours.property_bytes[:-CRC_BYTES]))


def sealed_by_rocketmq(draft: Draft, queue_offset: int, position: int) -> bytes:
    """A record of RocketMQ with enabledAppendPropCRC, born at a client."""
    ours = decode(encode_draft(draft, queue_offset, position, 5, host=HOST), position)
    return encode(replace(ours, born_host=Host(bytes((10, 0, 0, 9)), 51_234)))


def foreign_log(
    drafts: list[Draft],
    start: int,
    segment_bytes: int,
    next_offsets: dict[tuple[str, int], int] | None = None,
    *,
    system_flags: Sequence[int] = (),
) -> bytes:
    """Neighbouring records from byte `start` on, and blanks where segments end; `next_offsets` is kept up to date.

    A record of a transaction that is open or was rolled back takes no queue offset.
    """
    offsets = {} if next_offsets is None else next_offsets
    data = bytearray()
    for draft, flag in zip(drafts, system_flags or [0] * len(drafts), strict=True):
        key = (draft.topic, draft.queue)
        record = foreign_record(draft, offsets.get(key, 0), start + len(data), system_flag=flag)
        remaining = segment_bytes - (start + len(data)) % segment_bytes
        if len(record) + 8 > remaining:
            data += mark(remaining).ljust(remaining, b"\0")
            record = foreign_record(draft, offsets.get(key, 0), start + len(data), system_flag=flag)
        data += record
        offsets[key] = offsets.get(key, 0) + in_queues(flag)
    return bytes(data)


def put_log(machine: Machine, data: bytes, start: int) -> None:
    """Durably write into the segments, whole ones where there are none yet."""
    size = machine.options.segment_bytes
    storage = machine.storage()
    storage.make_folder("commitlog")
    at = 0
    while at < len(data):
        position = start + at
        path = f"commitlog/{position - position % size:020d}"
        file = storage.open(path, create=True)
        if file.size() < size:
            file.truncate(size)
        piece = data[at : at + size - position % size]
        file.pwrite(piece, position % size)
        file.fdatasync()
        at += len(piece)
    storage.sync_folder("commitlog")
    storage.sync_folder("")


def put_file(machine: Machine, path: str, data: bytes | None) -> None:
    """Durably replace or remove a file beside the log."""
    storage = machine.storage()
    if data is None:
        storage.unlink(path)
    else:
        file = storage.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.fdatasync()
    storage.sync_folder(path.rpartition("/")[0])
