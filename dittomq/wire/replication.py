"""Frames of the replication stream, both ways."""

import math
from collections.abc import AsyncIterable, AsyncIterator

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import (
    MAX_REPLICATION_SLOTS,
    Chunk,
    Goodbye,
    Handshake,
    HandshakeResult,
    Heartbeat,
    LeafDigests,
    LeafProbe,
    MissingRange,
    RangeDigest,
    RangePiece,
    ReplicationSlots,
    SlaveAck,
    SyncAction,
)
from dittomq.wire.epoch_history import epoch_history_from_pb, epoch_history_to_pb, missing_ranges_from_pb, missing_ranges_to_pb
from dittomq.wire.epochs import epoch_from_pb, node_id_from_pb, text_from_pb
from dittomq.wire.metadata import version_from_pb, version_to_pb

MAX_HANDSHAKE_DIGESTS = 64
LEAF_DIGEST_BYTES = 16

_LENGTH_DELIMITED = 2
_CHUNK_TAG = bytes([pb.ReplicateResponse.CHUNK_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])
_CHUNK_DATA_TAG = bytes([pb.Chunk.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED])

_ACTION_TO_PB = {
    SyncAction.STREAM: pb.SYNC_ACTION_STREAM,
    SyncAction.TRUNCATE: pb.SYNC_ACTION_TRUNCATE,
    SyncAction.RESYNC: pb.SYNC_ACTION_RESYNC,
    SyncAction.WAIT: pb.SYNC_ACTION_WAIT,
}
_ACTION_FROM_PB = {number: action for action, number in _ACTION_TO_PB.items()}


def digest_to_pb(digest: RangeDigest) -> pb.SegmentDigest:
    """As it is."""
    return pb.SegmentDigest(start_offset=digest.start, end_offset=digest.end, digest=digest.digest)


def digest_from_pb(digest: pb.SegmentDigest) -> RangeDigest:
    """Checked: at most 16 bytes."""
    if len(digest.digest) > LEAF_DIGEST_BYTES:
        raise InvalidField("digest", f"{len(digest.digest):,} bytes, the limit is {LEAF_DIGEST_BYTES}")
    return RangeDigest(PhysicalOffset(digest.start_offset), PhysicalOffset(digest.end_offset), digest.digest)


def handshake_to_pb(handshake: Handshake) -> pb.ReplicateRequest:
    """The first frame of a stream."""
    return pb.ReplicateRequest(
        handshake=pb.Handshake(
            cluster=handshake.cluster,
            broker=handshake.broker,
            broker_id=handshake.broker_id,
            replica_uuid=handshake.replica_uuid,
            protocol_version=handshake.protocol_version,
            min_offset=handshake.min_offset,
            end_offset=handshake.end,
            flushed_offset=handshake.flushed,
            confirmed_offset=handshake.confirmed,
            epoch_history=epoch_history_to_pb(handshake.epoch_history),
            digests=[digest_to_pb(digest) for digest in handshake.digests],
            verified_offset=handshake.verified_offset,
            replication_address=handshake.replication_address,
            segment_bytes=handshake.segment_bytes,
            verified_with=handshake.verified_with,
            missing_ranges=missing_ranges_to_pb(handshake.missing_ranges),
            incarnation=handshake.incarnation,
            birth=handshake.birth,
            adopted_epoch=handshake.adopted,
            promised_epoch=handshake.promised,
        )
    )


def ack_to_pb(ack: SlaveAck) -> pb.ReplicateRequest:
    """As it is."""
    return pb.ReplicateRequest(
        ack=pb.Ack(
            epoch=ack.epoch,
            received_offset=ack.received,
            flushed_offset=ack.flushed,
            applied_offset=ack.applied,
            digest=None if ack.digest is None else digest_to_pb(ack.digest),
            min_offset=ack.begin,
            reverify_from_offset=ack.reverify_from,
            adopted_epoch=ack.adopted,
            missing_ranges=missing_ranges_to_pb(ack.missing_now),
        )
    )


def leaves_to_pb(leaves: LeafDigests) -> pb.ReplicateRequest:
    """16 bytes a leaf, one after the other."""
    return pb.ReplicateRequest(leaves=pb.LeafDigests(start_offset=leaves.start, end_offset=leaves.end, digests=b"".join(leaves.digests)))


async def slave_events(frames: AsyncIterable[pb.ReplicateRequest]) -> AsyncIterator[Handshake | SlaveAck | LeafDigests | Goodbye]:
    """What a slave says, as it says it."""
    async for frame in frames:
        yield slave_event_from_pb(frame)


def slave_frame(message: Handshake | SlaveAck | LeafDigests | Goodbye) -> pb.ReplicateRequest:
    """What a slave says, as a frame."""
    match message:
        case SlaveAck():
            return ack_to_pb(message)
        case Handshake():
            return handshake_to_pb(message)
        case LeafDigests():
            return leaves_to_pb(message)
        case Goodbye():
            return pb.ReplicateRequest(goodbye=pb.Goodbye())


def master_frame(message: HandshakeResult | Chunk | MissingRange | Heartbeat | LeafProbe, wall_ms: int) -> bytes:
    """What a master says: a ReplicateResponse, encoded."""
    if isinstance(message, Chunk):
        return _chunk_frame(message)
    return _master_pb(message, wall_ms).SerializeToString()


def _master_pb(message: HandshakeResult | MissingRange | Heartbeat | LeafProbe, wall_ms: int) -> pb.ReplicateResponse:
    match message:
        case Heartbeat():
            return heartbeat_to_pb(message, wall_ms)
        case HandshakeResult():
            return handshake_result_to_pb(message)
        case LeafProbe():
            return probe_to_pb(message)
        case MissingRange():
            return missing_range_to_pb(message)


def slave_event_from_pb(frame: pb.ReplicateRequest) -> Handshake | SlaveAck | LeafDigests | Goodbye:
    """What a slave said; InvalidField for a frame that says nothing."""
    match frame.WhichOneof("event"):
        case "ack":
            ack = frame.ack
            return SlaveAck(
                Epoch(ack.epoch),
                PhysicalOffset(ack.received_offset),
                PhysicalOffset(ack.flushed_offset),
                PhysicalOffset(ack.applied_offset),
                digest_from_pb(ack.digest) if ack.HasField("digest") else None,
                PhysicalOffset(ack.min_offset) if ack.HasField("min_offset") else None,
                PhysicalOffset(ack.reverify_from_offset) if ack.HasField("reverify_from_offset") else None,
                epoch_from_pb("ack.adopted_epoch", ack.adopted_epoch),
                missing_ranges_from_pb(ack),
            )
        case "handshake":
            return _handshake_from_pb(frame.handshake)
        case "leaves":
            return _leaves_from_pb(frame.leaves)
        case "goodbye":
            return Goodbye()
        case _:
            raise InvalidField("event", "a frame must say something")


def _leaves_from_pb(leaves: pb.LeafDigests) -> LeafDigests:
    """Checked before anything is made of them: so many as the range has."""
    probe, packed = LeafProbe(PhysicalOffset(leaves.start_offset), PhysicalOffset(leaves.end_offset)), leaves.digests
    if not 0 <= probe.start < probe.end or len(packed) != LEAF_DIGEST_BYTES * probe.leaves:
        raise InvalidField("leaves.digests", f"{len(packed):,} bytes are not the leaves of [{probe.start:,}, {probe.end:,})")
    return LeafDigests(
        probe.start, probe.end, tuple(packed[at : at + LEAF_DIGEST_BYTES] for at in range(0, len(packed), LEAF_DIGEST_BYTES))
    )


def _handshake_from_pb(handshake: pb.Handshake) -> Handshake:
    for name in ("cluster", "broker", "replica_uuid", "incarnation", "birth", "replication_address", "verified_with"):
        text_from_pb(f"handshake.{name}", getattr(handshake, name))
    if len(handshake.digests) > MAX_HANDSHAKE_DIGESTS:
        raise InvalidField("handshake.digests", f"{len(handshake.digests)} digests, the limit is {MAX_HANDSHAKE_DIGESTS}")
    return Handshake(
        cluster=handshake.cluster,
        broker=handshake.broker,
        broker_id=node_id_from_pb("handshake.broker_id", handshake.broker_id),
        replica_uuid=handshake.replica_uuid,
        protocol_version=handshake.protocol_version,
        min_offset=PhysicalOffset(handshake.min_offset),
        end=PhysicalOffset(handshake.end_offset),
        flushed=PhysicalOffset(handshake.flushed_offset),
        confirmed=PhysicalOffset(handshake.confirmed_offset),
        epoch_history=epoch_history_from_pb(list(handshake.epoch_history)),
        digests=tuple(digest_from_pb(digest) for digest in handshake.digests),
        verified_offset=PhysicalOffset(handshake.verified_offset),
        replication_address=handshake.replication_address,
        segment_bytes=handshake.segment_bytes,
        incarnation=handshake.incarnation,
        birth=handshake.birth,
        adopted=epoch_from_pb("handshake.adopted_epoch", handshake.adopted_epoch),
        promised=epoch_from_pb("handshake.promised_epoch", handshake.promised_epoch),
        verified_with=handshake.verified_with,
        missing_ranges=missing_ranges_from_pb(handshake),
    )


def handshake_result_to_pb(handshake_result: HandshakeResult) -> pb.ReplicateResponse:
    """As it is."""
    return pb.ReplicateResponse(
        handshake_result=pb.HandshakeResult(
            action=_ACTION_TO_PB[handshake_result.action],
            from_offset=handshake_result.start,
            reason=handshake_result.reason,
            epoch=handshake_result.epoch,
            epoch_history=epoch_history_to_pb(handshake_result.epoch_history),
            heartbeat_ms=handshake_result.heartbeat_ms,
            end_offset=handshake_result.end,
            replica_uuid=handshake_result.replica_uuid,
            birth=handshake_result.birth,
            counts=handshake_result.counts,
        )
    )


def _chunk_frame(chunk: Chunk) -> bytes:
    """A ReplicateResponse, encoded. Protobuf copies a megabyte eight times on that way, this once; fields may stand in any order.

    Source: https://protobuf.dev/programming-guides/encoding/, length-delimited fields.
    """
    head = pb.Chunk(
        epoch=chunk.epoch, offset=chunk.offset, crc=chunk.crc, confirmed_offset=chunk.confirmed, end_offset=chunk.end
    ).SerializeToString()
    data_head = _CHUNK_DATA_TAG + _varint(len(chunk.data))
    size = len(head) + len(data_head) + len(chunk.data)
    return b"".join((_CHUNK_TAG, _varint(size), head, data_head, chunk.data))


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def heartbeat_to_pb(beat: Heartbeat, wall_ms: int) -> pb.ReplicateResponse:
    """As it is."""
    frame = pb.ReplicateResponse(
        heartbeat=pb.Heartbeat(epoch=beat.epoch, end_offset=beat.end, confirmed_offset=beat.confirmed, wall_ms=wall_ms)
    )
    if beat.digest is not None:
        frame.heartbeat.digest.CopyFrom(digest_to_pb(beat.digest))
    if beat.topics is not None:
        frame.heartbeat.topics_version.CopyFrom(version_to_pb(beat.topics))
    if beat.slots is not None:
        frame.heartbeat.slots.CopyFrom(slots_to_pb(beat.slots))
    if beat.silent_s is not None:
        frame.heartbeat.silent_ms = math.ceil(beat.silent_s * 1_000)
    return frame


def probe_to_pb(probe: LeafProbe) -> pb.ReplicateResponse:
    """As it is."""
    return pb.ReplicateResponse(probe=pb.LeafProbe(start_offset=probe.start, end_offset=probe.end))


def missing_range_to_pb(missing_range: MissingRange) -> pb.ReplicateResponse:
    """As it is."""
    return pb.ReplicateResponse(
        missing_range=pb.MissingRange(
            epoch=missing_range.epoch,
            start_offset=missing_range.start,
            end_offset=missing_range.end,
            confirmed_offset=missing_range.confirmed,
            log_end_offset=missing_range.log_end,
        )
    )


def master_event_from_pb(frame: pb.ReplicateResponse) -> HandshakeResult | Chunk | MissingRange | Heartbeat | LeafProbe:
    """What a master said; InvalidField for a frame that says nothing."""
    match frame.WhichOneof("event"):
        case "chunk":
            chunk = frame.chunk
            return Chunk(
                Epoch(chunk.epoch),
                PhysicalOffset(chunk.offset),
                chunk.crc,
                chunk.data,
                PhysicalOffset(chunk.confirmed_offset),
                PhysicalOffset(chunk.end_offset),
            )
        case "heartbeat":
            beat = frame.heartbeat
            return Heartbeat(
                Epoch(beat.epoch),
                PhysicalOffset(beat.end_offset),
                PhysicalOffset(beat.confirmed_offset),
                digest_from_pb(beat.digest) if beat.HasField("digest") else None,
                version_from_pb(beat.topics_version) if beat.HasField("topics_version") else None,
                slots_from_pb("heartbeat.slots", beat.slots) if beat.HasField("slots") else None,
                max(0, beat.silent_ms) / 1_000 if beat.HasField("silent_ms") else None,
            )
        case "handshake_result":
            return _handshake_result_from_pb(frame.handshake_result)
        case "probe":
            return LeafProbe(PhysicalOffset(frame.probe.start_offset), PhysicalOffset(frame.probe.end_offset))
        case "missing_range":
            return _missing_range_from_pb(frame.missing_range)
        case _:
            raise InvalidField("event", "a frame must say something")


def slots_to_pb(slots: ReplicationSlots) -> pb.ReplicationSlots:
    """As they are."""
    return pb.ReplicationSlots(slots=[pb.ReplicationSlot(node=node, offset=offset) for node, offset in slots])


def slots_from_pb(field: str, given: pb.ReplicationSlots) -> ReplicationSlots:
    """Checked: not too many, and no position or name beyond its limit."""
    if len(given.slots) > MAX_REPLICATION_SLOTS:
        raise InvalidField(field, f"{len(given.slots):,} are more than {MAX_REPLICATION_SLOTS}")
    for slot in given.slots:
        if slot.offset < 0:
            raise InvalidField(f"{field}.offset", f"{slot.offset:,} is negative")
        text_from_pb(f"{field}.node", slot.node)
    return tuple((slot.node, PhysicalOffset(slot.offset)) for slot in given.slots)


def _missing_range_from_pb(missing_range: pb.MissingRange) -> MissingRange:
    if not 0 <= missing_range.start_offset < missing_range.end_offset:
        raise InvalidField("missing_range.end_offset", f"{missing_range.end_offset:,} is not behind {missing_range.start_offset:,}")
    return MissingRange(
        Epoch(missing_range.epoch),
        PhysicalOffset(missing_range.start_offset),
        PhysicalOffset(missing_range.end_offset),
        PhysicalOffset(missing_range.confirmed_offset),
        PhysicalOffset(missing_range.log_end_offset),
    )


def _handshake_result_from_pb(handshake_result: pb.HandshakeResult) -> HandshakeResult:
    action = _ACTION_FROM_PB.get(handshake_result.action)
    if action is None:
        raise InvalidField("handshake_result.action", f"{handshake_result.action} is not known here; upgrade this node")
    return HandshakeResult(
        action,
        PhysicalOffset(handshake_result.from_offset),
        handshake_result.reason,
        epoch_from_pb("handshake_result.epoch", handshake_result.epoch),
        epoch_history_from_pb(list(handshake_result.epoch_history)),
        handshake_result.heartbeat_ms,
        PhysicalOffset(handshake_result.end_offset) if handshake_result.HasField("end_offset") else None,
        handshake_result.replica_uuid,
        text_from_pb("handshake_result.birth", handshake_result.birth),
        handshake_result.counts,
    )


def range_piece_to_pb(piece: RangePiece) -> pb.FetchRangeResponse:
    return pb.FetchRangeResponse(
        offset=piece.offset,
        crc=piece.crc,
        data=piece.data,
        epoch=piece.epoch,
        incarnation=piece.incarnation,
        damaged_end_offset=piece.damaged_end,
    )


def range_piece_from_pb(piece: pb.FetchRangeResponse) -> RangePiece:
    damaged_end = PhysicalOffset(piece.damaged_end_offset) if piece.HasField("damaged_end_offset") else None
    return RangePiece(PhysicalOffset(piece.offset), piece.crc, piece.data, Epoch(piece.epoch), piece.incarnation, damaged_end)
