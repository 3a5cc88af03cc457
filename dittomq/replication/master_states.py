"""④ Where a master's session with one slave may stand, and what leads where."""

from dittomq.replication.events import Handshake, LeafDigests, SlaveAck, Tick
from dittomq.replication.master_events import (
    BytesDamaged,
    ChunkSent,
    DigestsCompared,
    HeartbeatReady,
    LeafDiffers,
    LeavesCompared,
    LogMoved,
)
from dittomq.replication.state_machine import Label, Transitions


class MasterSessionState(Label):
    """Where a session stands; the value says it in words."""

    HANDSHAKE = "nothing is known of the slave yet"
    COMPARING = "its epoch history is ours as far as it goes; its digests are compared with ours"
    PROBING = "a digest differs; the leaves of that range are compared"
    TRUNCATING = "it was told to cut, or to copy this log anew, and sends its handshake again: of what it has cut, or of the copy"
    STREAMING = "its log is a part of ours; its acks count"
    ENDED = "the stream is over"


_AFTER_HANDSHAKE = (MasterSessionState.COMPARING, MasterSessionState.TRUNCATING, MasterSessionState.ENDED)

TRANSITIONS = Transitions(
    title="MasterSession",
    first=MasterSessionState.HANDSHAKE,
    said=(Handshake, SlaveAck, LeafDigests),
    rows={
        MasterSessionState.HANDSHAKE: {
            Handshake: _AFTER_HANDSHAKE,
            LogMoved: (MasterSessionState.HANDSHAKE,),
            Tick: (MasterSessionState.HANDSHAKE, MasterSessionState.ENDED),
        },
        MasterSessionState.COMPARING: {
            DigestsCompared: (MasterSessionState.PROBING, MasterSessionState.STREAMING),
            LogMoved: (MasterSessionState.COMPARING,),
            Tick: (MasterSessionState.COMPARING,),
        },
        MasterSessionState.PROBING: {
            LeafDigests: (MasterSessionState.PROBING, MasterSessionState.ENDED),
            LeafDiffers: (MasterSessionState.PROBING,),
            LeavesCompared: (MasterSessionState.PROBING, MasterSessionState.TRUNCATING, MasterSessionState.ENDED),
            LogMoved: (MasterSessionState.PROBING,),
            Tick: (MasterSessionState.PROBING, MasterSessionState.ENDED),
        },
        MasterSessionState.TRUNCATING: {
            Handshake: _AFTER_HANDSHAKE,
            LogMoved: (MasterSessionState.TRUNCATING,),
            Tick: (MasterSessionState.TRUNCATING,),
        },
        MasterSessionState.STREAMING: {
            SlaveAck: (MasterSessionState.STREAMING, MasterSessionState.ENDED),
            LogMoved: (MasterSessionState.STREAMING,),
            ChunkSent: (MasterSessionState.STREAMING,),
            BytesDamaged: (MasterSessionState.STREAMING,),
            HeartbeatReady: (MasterSessionState.STREAMING,),
            Tick: (MasterSessionState.STREAMING, MasterSessionState.ENDED),
        },
    },
)
