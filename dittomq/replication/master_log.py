"""A master's log, as its sessions judge slaves by it."""

from dataclasses import dataclass

from dittomq.epoch_history import EpochHistory
from dittomq.offsets import PhysicalOffset


@dataclass(frozen=True, slots=True)
class MasterLog:
    """The master's log as a session needs it, and what the master knows of the replica whose stream begins.

    `birth` is that of the group record, "" where there is none. `is_member`: the record names the replica under the node of its first
    handshake, or a write that is under way does. `counts`: it is a member, or may become one. `acknowledged`: so far it has acknowledged
    this log as flushed, on earlier streams.
    """

    cluster: str
    broker: str
    segment_bytes: int
    min_offset: PhysicalOffset
    end: PhysicalOffset
    confirmed: PhysicalOffset
    epoch_history: EpochHistory
    node: str
    replica_uuid: str
    birth: str = ""
    is_member: bool = False
    counts: bool = True
    acknowledged: PhysicalOffset = PhysicalOffset(0)
