"""⑤ The master, as one of its slaves sees it.

Pure: the driver owns the stream, the clock and the store, and reports what was written and synced.

Its moves are the table in `slave_states`: what the master says out of turn ends the stream.
Nothing is written past a gap, from another epoch, or with a wrong CRC. Acks name record ends.
"""

from dataclasses import replace
from typing import assert_never

from zlib_ng.zlib_ng import crc32

from dittomq.epoch_history import EpochHistory, common_end, newest_epoch, newest_incarnation, truncate_history
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.active_time import ActiveTime
from dittomq.replication.events import Chunk, HandshakeResult, Heartbeat, LeafProbe, MissingRange, RangeDigest, SlaveAck, SyncAction, Tick
from dittomq.replication.slave_events import (
    AdoptEpoch,
    AnswerProbe,
    BindToMaster,
    Command,
    DamageFound,
    DigestRange,
    DigestReady,
    Event,
    LogWritten,
    Promised,
    Reconnect,
    RecordCompared,
    ReplaceEpochHistory,
    SendAck,
    SendHandshake,
    SetLogStart,
    SkipRange,
    SlaveLog,
    StartFullResync,
    Truncated,
    TruncateLog,
    UpdateConfirmed,
    UpdateFreshness,
    UpdateReplicationSlots,
    UpdateTopics,
    VerifiedEndLowered,
    WriteChunk,
)
from dittomq.replication.slave_states import TRANSITIONS, SlaveSessionState


class SlaveSession:
    """One stream to the master."""

    def __init__(self, log: SlaveLog, *, silence_s: float, now: float) -> None:
        """`log` is what the first handshake names."""
        self.state = TRANSITIONS.first
        self.epoch = Epoch(0)
        self._epoch_history = log.epoch_history
        self._promised = log.promised
        self._birth = log.birth
        self._asked_to_adopt = False
        self._target: EpochHistory = ()
        self._master = ""
        self._begin = log.begin
        self._end = log.stored.received
        self._silence_s = silence_s
        self._time = ActiveTime(now)
        self._received_at = 0.0
        self._stored = log.stored
        self._reverify_from: PhysicalOffset | None = None  # what neither the handshake nor an ack has told

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event; the driver obeys the commands in order before it reports the next."""
        before, kind = self.state, event.action if isinstance(event, HandshakeResult) else type(event)
        if TRANSITIONS.is_final(before):
            return []
        if problem := TRANSITIONS.out_of_turn(before, kind):
            return self._reconnect(problem)
        commands = self._take(event, self._time.at(now))
        TRANSITIONS.check(before, kind, self.state)
        return commands

    def _take(self, event: Event, now: float) -> list[Command]:
        match event:
            case Truncated():
                self._received_at = now
                self.state = SlaveSessionState.HANDSHAKE
                self._stored, self._reverify_from = event.stored, None
                return [SendHandshake()]
            case LogWritten():
                return self._store_moved(event)
            case DigestReady():
                return self._digest_ready(event)
            case VerifiedEndLowered():
                self._reverify_from = event.start if self._reverify_from is None else min(self._reverify_from, event.start)
                return self._send_reverify()
            case DamageFound():  # the next handshake says nothing of that segment, so nothing is cut for it
                return self._reconnect(f"the copies differ by content and this one is damaged from {event.start:,} to {event.end:,}")
            case Tick():
                if self.state is not SlaveSessionState.TRUNCATING and now - self._received_at > self._silence_s:
                    return self._reconnect(f"the master was silent for {now - self._received_at:.0f} s")
                return []
            case Promised():
                return self._reconnect(f"this replica promises epoch {event.epoch}")
            case HandshakeResult() | Chunk() | MissingRange() | Heartbeat() | LeafProbe():
                self._received_at = now
                return self._received(event)
            case _:
                assert_never(event)

    def _received(self, event: HandshakeResult | Chunk | MissingRange | Heartbeat | LeafProbe) -> list[Command]:
        match event:
            case HandshakeResult():
                return self._apply(event)
            case Chunk():
                return self._write(event)
            case MissingRange():
                return self._pass_over(event)
            case Heartbeat():
                return self._beat(event)
            case LeafProbe():
                return [AnswerProbe(event)]

    def _apply(self, handshake_result: HandshakeResult) -> list[Command]:
        if handshake_result.action is not SyncAction.WAIT and (problem := self._why_not_bound(handshake_result)):
            return self._reconnect(problem)
        match handshake_result.action:
            case SyncAction.WAIT:
                return []
            case SyncAction.TRUNCATE:
                if handshake_result.start >= self._end:
                    return self._reconnect(f"told to cut to {handshake_result.start:,} with an end of {self._end:,}")
                self.state = SlaveSessionState.TRUNCATING
                self._end = handshake_result.start
                self._epoch_history = truncate_history(self._epoch_history, handshake_result.start)
                return [self._bind_to_master(handshake_result), TruncateLog(handshake_result.start, handshake_result.reason)]
            case SyncAction.RESYNC:
                return self._full_resync(handshake_result)
            case SyncAction.STREAM:
                return self._follow(handshake_result)

    def _why_not_bound(self, handshake_result: HandshakeResult) -> str:
        """Why this master is not obeyed; empty when it is."""
        newest = max(self._promised, newest_epoch(self._epoch_history))
        if newest_epoch(handshake_result.epoch_history) != handshake_result.epoch or handshake_result.epoch < newest:
            return f"epoch {handshake_result.epoch} is older than {newest}, which this replica has promised"
        if self._birth and handshake_result.birth != self._birth:
            theirs = f"by the group record with the birth {handshake_result.birth}" if handshake_result.birth else "without a group record"
            return f"the master leads {theirs}, and this replica belongs to that with the birth {self._birth}"
        return ""

    def _bind_to_master(self, handshake_result: HandshakeResult) -> Command:
        self._promised, self._birth = max(handshake_result.epoch, self._promised), handshake_result.birth
        return BindToMaster(handshake_result.epoch, handshake_result.birth)

    def _full_resync(self, handshake_result: HandshakeResult) -> list[Command]:
        if handshake_result.end is None or not handshake_result.start <= handshake_result.end or self._end == self._begin:
            return self._reconnect(
                f"told to copy [{handshake_result.start}, {handshake_result.end}) anew with [{self._begin}, {self._end})"
            )
        self.state = SlaveSessionState.ENDED
        common = common_end(
            ours=self._epoch_history, our_end=self._end, theirs=handshake_result.epoch_history, their_end=handshake_result.end
        )
        agreed = PhysicalOffset(min(common, handshake_result.start))
        return [
            self._bind_to_master(handshake_result),
            StartFullResync(handshake_result.start, handshake_result.end, agreed, handshake_result.reason),
        ]

    def _follow(self, handshake_result: HandshakeResult) -> list[Command]:
        holds_nothing = self._end == self._begin
        if handshake_result.start != self._end and not holds_nothing:
            return self._reconnect(f"told to stream from {handshake_result.start:,} with an end of {self._end:,}")
        self.state = SlaveSessionState.STREAMING
        self.epoch = handshake_result.epoch
        self._target = handshake_result.epoch_history
        self._master = handshake_result.replica_uuid
        begin: list[Command] = []
        if handshake_result.start != self._end:
            begin, self._begin = [SetLogStart(handshake_result.start)], handshake_result.start
            before = self._stored
            self._stored = LogWritten(
                handshake_result.start, handshake_result.start, before.applied, handshake_result.start, adopted=before.adopted
            )
        self._end = handshake_result.start
        commands = [self._bind_to_master(handshake_result), *begin, *self._adopt(self._end), *self._send_reverify()]
        return commands + self._adopt_epoch()

    def _adopt(self, position: PhysicalOffset) -> list[Command]:
        """Take over the master's epoch history up to the epoch of the next byte as soon as that is known: its master may write none for
        long.
        """
        upto = tuple(entry for entry in self._target if entry.start <= position)
        if upto == self._epoch_history:
            return []
        self._epoch_history = upto
        return [ReplaceEpochHistory(upto)]

    def _adopt_epoch(self) -> list[Command]:
        """Once: when this log is its master's, durably, up to where the epoch begins. Acks count from there on."""
        stored, target = self._stored, self._target
        is_there = bool(target) and stored.incarnation == newest_incarnation(target) and stored.flushed >= target[-1].start
        if self._asked_to_adopt or not is_there or stored.adopted >= self.epoch:
            return []
        self._asked_to_adopt = True
        return [AdoptEpoch(self.epoch)]

    def _write(self, chunk: Chunk) -> list[Command]:
        if crc32(chunk.data) != chunk.crc:
            return self._reconnect(f"a chunk at {chunk.offset:,} changed on its way")
        write = WriteChunk(chunk.offset, chunk.data)
        stop = PhysicalOffset(chunk.offset + len(chunk.data))
        return self._extend(write, (chunk.offset, stop), chunk.epoch, UpdateConfirmed(chunk.confirmed, chunk.end))

    def _pass_over(self, missing_range: MissingRange) -> list[Command]:
        if any(missing_range.start < entry.start < missing_range.end for entry in self._target):
            return self._reconnect(f"a missing range from {missing_range.start:,} to {missing_range.end:,} across an epoch")
        leave = SkipRange(missing_range.start, missing_range.end)
        return self._extend(
            leave,
            (missing_range.start, missing_range.end),
            missing_range.epoch,
            UpdateConfirmed(missing_range.confirmed, missing_range.log_end),
        )

    def _extend(
        self, write: WriteChunk | SkipRange, span: tuple[PhysicalOffset, PhysicalOffset], epoch: Epoch, learn: UpdateConfirmed
    ) -> list[Command]:
        """Let the log grow by this span, when it is the next one and of the right epoch."""
        what, (start, end) = "chunk" if isinstance(write, WriteChunk) else "missing range", span
        if end <= self._end:
            return [learn]
        if start != self._end:
            return self._reconnect(f"a {what} at {start:,} where {self._end:,} is next")
        if epoch != newest_epoch(self._epoch_history):
            return self._reconnect(f"a {what} of epoch {epoch} in epoch {newest_epoch(self._epoch_history)}")
        self._end = end
        return [write, *self._adopt(end), learn]

    def _beat(self, beat: Heartbeat) -> list[Command]:
        if beat.epoch != self.epoch:
            return self._reconnect(f"a heartbeat of epoch {beat.epoch} in epoch {self.epoch}")
        learn: list[Command] = [UpdateConfirmed(beat.confirmed, beat.end)]
        if beat.silent_s is not None:
            learn.append(UpdateFreshness(beat.confirmed, beat.silent_s))
        if beat.topics is not None:
            learn.append(UpdateTopics(beat.topics))
        if beat.slots is not None:
            learn.append(UpdateReplicationSlots(beat.slots))
        if beat.digest is not None and self._begin <= beat.digest.start and beat.digest.end <= self._stored.flushed:
            return [*learn, SendAck(self._ack(None)), DigestRange(beat.digest)]
        return [*learn, SendAck(self._ack(None if beat.digest is None else _not_whole(beat.digest)))]

    def _digest_ready(self, event: DigestReady) -> list[Command]:
        if event.ours is None:
            return [SendAck(self._ack(_not_whole(event.theirs)))]
        note = RecordCompared(event.ours.start, event.ours.end, event.ours == event.theirs, self._master)
        return [note, SendAck(self._ack(event.ours))]

    def _store_moved(self, stored: LogWritten) -> list[Command]:
        if self.state is SlaveSessionState.STREAMING and stored.received < self._stored.received:
            return []  # said before the log began where it was told
        moved = stored != self._stored
        self._stored = stored
        if self.state is not SlaveSessionState.STREAMING or not moved:
            return []
        return [SendAck(self._ack(None)), *self._adopt_epoch()]

    def _send_reverify(self) -> list[Command]:
        if self.state is not SlaveSessionState.STREAMING or self._reverify_from is None:
            return []
        reverify_from, self._reverify_from = self._reverify_from, None
        return [SendAck(replace(self._ack(None), reverify_from=reverify_from))]

    def _ack(self, digest: RangeDigest | None) -> SlaveAck:
        stored = self._stored
        return SlaveAck(self.epoch, stored.received, stored.flushed, stored.applied, digest, stored.begin, adopted=stored.adopted)

    def _reconnect(self, reason: str) -> list[Command]:
        self.state = SlaveSessionState.ENDED
        return [Reconnect(reason)]


def _not_whole(asked: RangeDigest) -> RangeDigest:
    """The answer for a range that this copy cannot digest: its master need not wait for another one."""
    return replace(asked, digest=b"")
