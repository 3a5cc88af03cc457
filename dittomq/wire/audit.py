"""Audit messages ↔ values."""

from dittomq._pb.ditto.audit.v1 import audit_pb2 as pb
from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.copies import DIGEST_BYTES, CopyDescription, RangeDigests
from dittomq.lineage import LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion


def describe_response(copy: CopyDescription) -> pb.DescribeResponse:
    """Encode what a copy holds."""
    version = copy.topic_version
    return pb.DescribeResponse(
        node=copy.node,
        cluster=copy.cluster,
        replica_uuid=copy.replica_uuid,
        role=copy.role,
        epoch=copy.epoch,
        lineage=[
            replication_pb2.LineageEntry(
                epoch=entry.epoch, opener_id=entry.opener_id, incarnation=entry.incarnation, start_offset=entry.start
            )
            for entry in copy.lineage
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


def copy_description(message: pb.DescribeResponse) -> CopyDescription:
    """Decode what a copy holds."""
    version = message.topic_version
    return CopyDescription(
        node=message.node,
        cluster=message.cluster,
        replica_uuid=message.replica_uuid,
        role=message.role,
        lineage=tuple(
            LineageEntry(Epoch(entry.epoch), entry.opener_id, entry.incarnation, PhysicalOffset(entry.start_offset))
            for entry in message.lineage
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
