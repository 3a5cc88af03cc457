"""Audit messages ↔ values."""

import re

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.audit.v1 import audit_pb2 as pb
from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.copies import DIGEST_BYTES, MAX_LEASE_S, MIN_LEASE_S, Pin, RangeDigests, ReplicaDescription
from dittomq.epoch_history import EpochEntry
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion

_RUN = re.compile(r"[a-zA-Z0-9_.:-]{1,63}")
_PIN_ID = re.compile(r"[0-9a-f]{32}")


def describe_response(copy: ReplicaDescription) -> pb.DescribeResponse:
    """Encode what a copy holds."""
    version = copy.topic_version
    return pb.DescribeResponse(
        node=copy.node,
        cluster=copy.cluster,
        replica_uuid=copy.replica_uuid,
        role=copy.role,
        epoch=copy.epoch,
        epoch_history=[
            replication_pb2.EpochEntry(
                epoch=entry.epoch, master_id=entry.master_id, incarnation=entry.incarnation, start_offset=entry.start
            )
            for entry in copy.epoch_history
        ],
        generation=copy.generation,
        min_offset=copy.min_offset,
        end_offset=copy.end,
        flushed_offset=copy.flushed,
        confirmed_offset=copy.confirmed,
        segment_bytes=copy.segment_bytes,
        topic_version=metadata_pb2.DataVersion(
            state_version=version.state_version, timestamp_ms=version.timestamp_ms, counter=version.counter
        ),
        version=copy.version,
    )


def replica_description(message: pb.DescribeResponse) -> ReplicaDescription:
    """Decode what a copy holds."""
    version = message.topic_version
    return ReplicaDescription(
        node=message.node,
        cluster=message.cluster,
        replica_uuid=message.replica_uuid,
        role=message.role,
        epoch_history=tuple(
            EpochEntry(Epoch(entry.epoch), entry.master_id, entry.incarnation, PhysicalOffset(entry.start_offset))
            for entry in message.epoch_history
        ),
        generation=message.generation,
        min_offset=PhysicalOffset(message.min_offset),
        end=PhysicalOffset(message.end_offset),
        flushed=PhysicalOffset(message.flushed_offset),
        confirmed=PhysicalOffset(message.confirmed_offset),
        segment_bytes=message.segment_bytes,
        topic_version=DataVersion(version.state_version, version.timestamp_ms, version.counter),
        version=message.version,
    )


def digest_range_response(digests: RangeDigests) -> pb.DigestRangeResponse:
    """Encode the digests of one segment's part of a range."""
    return pb.DigestRangeResponse(
        start_offset=digests.start,
        end_offset=digests.end,
        root=digests.root,
        leaves=b"".join(digests.leaves),
        unreadable=digests.unreadable,
    )


def range_digests(message: pb.DigestRangeResponse) -> RangeDigests:
    """Decode the digests of one segment's part of a range."""
    joined = message.leaves
    return RangeDigests(
        start=PhysicalOffset(message.start_offset),
        end=PhysicalOffset(message.end_offset),
        root=message.root,
        leaves=tuple(joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES)),
        unreadable=message.unreadable,
    )


def read_range_response(start: PhysicalOffset, data: bytes) -> pb.ReadRangeResponse:
    """Encode one piece of raw bytes."""
    return pb.ReadRangeResponse(offset=start, data=data)


def pin_request(message: pb.PinRequest) -> tuple[str, PhysicalOffset | None, float]:
    """The run's name, the first byte to keep (None: the first one held) and the lease in seconds. Raises InvalidField."""
    if not _RUN.fullmatch(message.run):
        raise InvalidField("run", "is no name of 1 to 63 characters of [a-zA-Z0-9_.:-]")
    start = PhysicalOffset(message.start_offset) if message.HasField("start_offset") else None
    return message.run, start, lease_s(message.lease)


def lease_s(lease: Duration) -> float:
    """Seconds. Raises InvalidField outside of the limits, also when it is absent."""
    seconds = float(lease.seconds + lease.nanos / 1e9)
    if not MIN_LEASE_S <= seconds <= MAX_LEASE_S:
        raise InvalidField("lease", f"{seconds:g} s is outside [{MIN_LEASE_S}, {MAX_LEASE_S}]")
    return seconds


def lease(seconds: float) -> Duration:
    """Encode a lease."""
    nanos = round(seconds * 1e9)
    return Duration(seconds=nanos // 1_000_000_000, nanos=nanos % 1_000_000_000)


def pin_id(text: str) -> str:
    """The name of a pin. Raises InvalidField for what is none."""
    if not _PIN_ID.fullmatch(text):
        raise InvalidField("pin_id", "is no name of a pin: 32 hexadecimal digits")
    return text


def pin_response(pin: Pin) -> pb.PinResponse:
    """Encode a pin that was taken."""
    return pb.PinResponse(pin_id=pin.pin_id, start_offset=pin.start)


def pin(message: pb.PinResponse) -> Pin:
    """Decode a pin that was taken."""
    return Pin(message.pin_id, PhysicalOffset(message.start_offset))
