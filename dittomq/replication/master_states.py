"""④ Where a master's session with one slave may stand, and what leads where."""

from dittomq.replication.events import Handshake, LeafDigests, SlaveAck
from dittomq.replication.master_events import (
    BytesDamaged,
    ChunkSent,
    DigestsCompared,
    HeartbeatReady,
    LeafDiffers,
    LeavesCompared,
    LogMoved,
    Tick,
)
from dittomq.replication.moves import Label, Moves


class State(Label):
    """Where a session stands; the value says it in words."""

    GREETING = "nothing is known of the slave yet"
    COMPARING = "its lineage is ours as far as it goes; its digests are compared with ours"
    PROBING = "a digest differs; the leaves of that range are compared"
    CUTTING = "it was told to cut, or to copy this log anew, and sends its handshake again: of what it has cut, or of the copy"
    STREAMING = "its log is a part of ours; its acks count"
    ENDED = "the stream is over"


_GREETED = (State.COMPARING, State.CUTTING, State.ENDED)

MOVES = Moves(
    title="MasterSession",
    first=State.GREETING,
    said=(Handshake, SlaveAck, LeafDigests),
    rows={
        State.GREETING: {
            Handshake: _GREETED,
            LogMoved: (State.GREETING,),
            Tick: (State.GREETING, State.ENDED),
        },
        State.COMPARING: {
            DigestsCompared: (State.PROBING, State.STREAMING),
            LogMoved: (State.COMPARING,),
            Tick: (State.COMPARING,),
        },
        State.PROBING: {
            LeafDigests: (State.PROBING, State.ENDED),
            LeafDiffers: (State.PROBING,),
            LeavesCompared: (State.PROBING, State.CUTTING, State.ENDED),
            LogMoved: (State.PROBING,),
            Tick: (State.PROBING, State.ENDED),
        },
        State.CUTTING: {
            Handshake: _GREETED,
            LogMoved: (State.CUTTING,),
            Tick: (State.CUTTING,),
        },
        State.STREAMING: {
            SlaveAck: (State.STREAMING, State.ENDED),
            LogMoved: (State.STREAMING,),
            ChunkSent: (State.STREAMING,),
            BytesDamaged: (State.STREAMING,),
            HeartbeatReady: (State.STREAMING,),
            Tick: (State.STREAMING, State.ENDED),
        },
    },
)
