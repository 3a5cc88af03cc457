"""Slaves that send a handshake to a master."""

from dittomq.epoch_history import EpochEntry, EpochHistory
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import PROTOCOL_VERSION, Handshake

ONE: EpochHistory = (EpochEntry(Epoch(1), 0, 11, PhysicalOffset(0)),)


def handshake(broker_id: int, end: int, epoch_history: EpochHistory = ONE, confirmed: int = 0) -> Handshake:
    return Handshake(
        cluster="c",
        broker="a",
        broker_id=broker_id,
        replica_uuid=f"u{broker_id}",
        protocol_version=PROTOCOL_VERSION,
        min_offset=PhysicalOffset(0),
        end=PhysicalOffset(end),
        flushed=PhysicalOffset(end),
        confirmed=PhysicalOffset(confirmed),
        epoch_history=epoch_history,
        digests=(),
        verified_offset=PhysicalOffset(0),
        replication_address=f"a-{broker_id}:10912",
        segment_bytes=65_536,
    )
