"""⑤ Where a slave's session with its master may stand, and what leads where."""

from dittomq.replication.events import Chunk, Heartbeat, LeafProbe, MissingRange, SyncAction, Tick
from dittomq.replication.slave_events import DamageFound, DigestReady, LogWritten, Promised, Truncated, VerifiedEndLowered
from dittomq.replication.state_machine import Label, Transitions


class SlaveSessionState(Label):
    """Where a session stands; the value says it in words."""

    HANDSHAKE = "the handshake was sent; the handshake result is awaited"
    TRUNCATING = "the log is cut as told, and what is left is read for the next handshake: the master waits"
    STREAMING = "the stream's bytes are written and acknowledged"
    ENDED = "the stream is over"


TRANSITIONS = Transitions(
    title="SlaveSession",
    first=SlaveSessionState.HANDSHAKE,
    said=(*SyncAction, Chunk, MissingRange, Heartbeat, LeafProbe),
    rows={
        SlaveSessionState.HANDSHAKE: {
            SyncAction.WAIT: (SlaveSessionState.HANDSHAKE,),
            SyncAction.TRUNCATE: (SlaveSessionState.TRUNCATING, SlaveSessionState.ENDED),
            SyncAction.RESYNC: (SlaveSessionState.ENDED,),
            SyncAction.STREAM: (SlaveSessionState.STREAMING, SlaveSessionState.ENDED),
            LeafProbe: (SlaveSessionState.HANDSHAKE,),
            DamageFound: (SlaveSessionState.ENDED,),
            LogWritten: (SlaveSessionState.HANDSHAKE,),
            VerifiedEndLowered: (SlaveSessionState.HANDSHAKE,),
            Tick: (SlaveSessionState.HANDSHAKE, SlaveSessionState.ENDED),
            Promised: (SlaveSessionState.ENDED,),
        },
        SlaveSessionState.TRUNCATING: {
            Truncated: (SlaveSessionState.HANDSHAKE,),
            LogWritten: (SlaveSessionState.TRUNCATING,),
            VerifiedEndLowered: (SlaveSessionState.TRUNCATING,),
            Tick: (SlaveSessionState.TRUNCATING,),
            Promised: (SlaveSessionState.ENDED,),
        },
        SlaveSessionState.STREAMING: {
            Chunk: (SlaveSessionState.STREAMING, SlaveSessionState.ENDED),
            MissingRange: (SlaveSessionState.STREAMING, SlaveSessionState.ENDED),
            Heartbeat: (SlaveSessionState.STREAMING, SlaveSessionState.ENDED),
            LogWritten: (SlaveSessionState.STREAMING,),
            DigestReady: (SlaveSessionState.STREAMING,),
            VerifiedEndLowered: (SlaveSessionState.STREAMING,),
            Tick: (SlaveSessionState.STREAMING, SlaveSessionState.ENDED),
            Promised: (SlaveSessionState.ENDED,),
        },
    },
)
