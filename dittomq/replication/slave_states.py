"""⑤ Where a slave's session with its master may stand, and what leads where."""

from dittomq.replication.events import Chunk, Heartbeat, LeafProbe, MissingRange, SyncAction
from dittomq.replication.moves import Label, Moves
from dittomq.replication.slave_events import CutDone, DamageFound, DigestReady, Doubted, Promised, Stored, Tick


class State(Label):
    """Where a session stands; the value says it in words."""

    GREETING = "the handshake was sent; the handshake result is awaited"
    CUTTING = "the log is cut as told, and what is left is read for the next handshake: the master waits"
    FOLLOWING = "the stream's bytes are written and acknowledged"
    ENDED = "the stream is over"


MOVES = Moves(
    title="SlaveSession",
    first=State.GREETING,
    said=(*SyncAction, Chunk, MissingRange, Heartbeat, LeafProbe),
    rows={
        State.GREETING: {
            SyncAction.WAIT: (State.GREETING,),
            SyncAction.TRUNCATE: (State.CUTTING, State.ENDED),
            SyncAction.RESYNC: (State.ENDED,),
            SyncAction.STREAM: (State.FOLLOWING, State.ENDED),
            LeafProbe: (State.GREETING,),
            DamageFound: (State.ENDED,),
            Stored: (State.GREETING,),
            Doubted: (State.GREETING,),
            Tick: (State.GREETING, State.ENDED),
            Promised: (State.ENDED,),
        },
        State.CUTTING: {
            CutDone: (State.GREETING,),
            Stored: (State.CUTTING,),
            Doubted: (State.CUTTING,),
            Tick: (State.CUTTING,),
            Promised: (State.ENDED,),
        },
        State.FOLLOWING: {
            Chunk: (State.FOLLOWING, State.ENDED),
            MissingRange: (State.FOLLOWING, State.ENDED),
            Heartbeat: (State.FOLLOWING, State.ENDED),
            Stored: (State.FOLLOWING,),
            DigestReady: (State.FOLLOWING,),
            Doubted: (State.FOLLOWING,),
            Tick: (State.FOLLOWING, State.ENDED),
            Promised: (State.ENDED,),
        },
    },
)
