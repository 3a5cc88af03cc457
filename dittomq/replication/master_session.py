"""④ One slave, as its master sees it.

Pure: the driver owns the stream and the clock, computes digests, and reports back.

Its moves are the table in `master_states`: what a slave says out of turn ends the session.
A position counts as an ack only in STREAMING, and only inside [what was acked, what was sent].
"""

from dataclasses import dataclass, replace
from typing import Final, assert_never

from dittomq.copies import LEAF_BYTES
from dittomq.epoch_history import common_end, epoch_at, epoch_end_offset, newest_epoch
from dittomq.offsets import PhysicalOffset
from dittomq.replication import events
from dittomq.replication.active_time import ActiveTime
from dittomq.replication.consistency_check import Answer, ConsistencyCheck
from dittomq.replication.events import (
    Handshake,
    HandshakeResult,
    Heartbeat,
    LeafDigests,
    LeafProbe,
    MissingRange,
    RangeDigest,
    SlaveAck,
    SyncAction,
    Tick,
)
from dittomq.replication.master_events import (
    BytesDamaged,
    ChunkSent,
    Command,
    CompareDigests,
    CompareLeaves,
    DigestsCompared,
    EndSlaveStream,
    Event,
    HeartbeatReady,
    LeafDiffers,
    LeavesCompared,
    LogMoved,
    PrepareHeartbeat,
    PromisedAbove,
    RecordAck,
    RecordVerified,
    RejectSlave,
    RemoveMember,
    SendChunk,
    SendHandshakeResult,
    SendHeartbeat,
    SendMissingRange,
    SendProbe,
)
from dittomq.replication.master_log import MasterLog
from dittomq.replication.master_states import TRANSITIONS, MasterSessionState
from dittomq.routes import DataVersion

_PROBE_BYTES: Final = 8 * LEAF_BYTES  # what a slow disk reads within the time that either side bears silence
_STEP_S: Final = 0.95  # steps of `verify_step_bytes` come at most once a second; a timer may be a little early


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Sizes in bytes, times in seconds. Every `digest_s`, or each second while much is to be compared, a heartbeat carries a digest."""

    max_inflight_bytes: int = 16 * 1024 * 1024
    heartbeat_s: float = 0.5
    silence_s: float = 3.0
    digest_s: float = 5.0
    verify_step_bytes: int = 64 * 1024 * 1024


class MasterSession:
    """One slave's stream, from handshake to end. One chunk and one heartbeat are under way at a time."""

    def __init__(self, log: MasterLog, limits: SessionLimits, now: float) -> None:
        self._log = log
        self._limits = limits
        self._epoch = newest_epoch(log.epoch_history)
        self.state = TRANSITIONS.first
        self._end = log.end
        self._confirmed = log.confirmed
        self._confirmed_sent = PhysicalOffset(-1)
        self._confirmed_sending = PhysicalOffset(-1)
        self._handshake: Handshake | None = None
        self._acknowledged = log.acknowledged
        self._is_member = log.is_member
        self._sent = PhysicalOffset(0)
        self._received = PhysicalOffset(0)
        self._flushed = PhysicalOffset(0)
        self._check = self._new_check(begin=log.min_offset, verified=log.min_offset)
        self._probe: LeafProbe | None = None
        self._unsearched = (PhysicalOffset(0), PhysicalOffset(0))  # behind the leaves that were asked for
        self._sending = False
        self._topics: DataVersion | None = None
        self._topics_sent: DataVersion | None = None
        self._time = ActiveTime(now)
        self._received_at = self._beat_at = self._digest_at = 0.0

    @property
    def silence_s(self) -> float:
        """Whoever says nothing for longer is dropped."""
        return self._limits.silence_s

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event; the driver obeys the commands in order before it reports the next."""
        before, kind = self.state, type(event)
        if TRANSITIONS.is_final(before):
            return []
        if problem := TRANSITIONS.out_of_turn(before, kind):
            return self._drop(problem)
        commands = self._take(event, self._time.at(now))
        TRANSITIONS.check(before, kind, self.state)
        return commands

    def _take(self, event: Event, now: float) -> list[Command]:
        match event:
            case Handshake():
                self._received_at = now
                return self._greet(event)
            case DigestsCompared():
                self._received_at = now  # whoever waits has nothing to say
                return self._judge_digests(event)
            case LeafDigests():
                self._received_at = now
                return self._compare_leaves(event)
            case LeafDiffers():
                return self._ask(event.start, event.end)
            case LeavesCompared():
                return self._judge_leaves(event)
            case SlaveAck():
                self._received_at = now
                return self._acked(event) + self._pump()
            case LogMoved():
                self._end, self._confirmed, self._topics = event.end, event.confirmed, event.topics
                return self._pump() + self._send_topics()
            case ChunkSent():
                self._sending = False
                self._sent = max(self._sent, event.end)
                self._confirmed_sent = max(self._confirmed_sent, self._confirmed_sending)
                return self._pump()
            case BytesDamaged():
                return [self._missing_range(event)]
            case HeartbeatReady():
                self._check.digested(event.digest, event.begin)
                return [self._heartbeat(event.digest)]
            case Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    def _greet(self, handshake: Handshake) -> list[Command]:
        if problem := self._misfit(handshake) or self._stranger(handshake):
            self.state = MasterSessionState.ENDED
            return [RejectSlave(problem)]
        self._handshake = handshake
        if handshake.newest_epoch > self._epoch:
            why = f"{handshake.node} has promised epoch {handshake.newest_epoch}, newer than {self._epoch}"
            return [PromisedAbove(handshake.newest_epoch, handshake.node), *self._drop(why)]
        common = common_end(ours=self._log.epoch_history, our_end=self._end, theirs=handshake.epoch_history, their_end=handshake.end)
        self.state, begin = MasterSessionState.COMPARING, self._log.min_offset
        if handshake.end == handshake.min_offset:  # it holds nothing, so it begins where this log does
            self._handshake = replace(handshake, min_offset=begin, end=begin, flushed=begin)
            return [CompareDigests((), begin)]
        if common < begin:
            return self._send_resync(handshake, f"the copies agree only up to {common:,}, and this log begins at {begin:,}")
        if handshake.end > common:
            return self._send_truncate(max(common, handshake.min_offset), self._why_truncate(handshake, common))
        verified = min(handshake.verified_offset, handshake.end) if handshake.verified_with == self._log.replica_uuid else 0
        both = PhysicalOffset(max(begin, handshake.min_offset))
        self._check = self._new_check(begin=both, verified=PhysicalOffset(max(both, verified)))
        digests = tuple(digest for digest in handshake.digests if digest.start >= begin and digest.end <= common)
        return [CompareDigests(digests, self._check.verified)]

    def _new_check(self, *, begin: PhysicalOffset, verified: PhysicalOffset) -> ConsistencyCheck:
        return ConsistencyCheck(
            begin=begin, verified=verified, segment_bytes=self._log.segment_bytes, step_bytes=self._limits.verify_step_bytes
        )

    def _why_truncate(self, handshake: Handshake, common: PhysicalOffset) -> str:
        if not handshake.epoch_history:
            return "written by nobody known"
        return "beyond the end of this master's log" if common == self._end else "written under another master"

    def _misfit(self, handshake: Handshake) -> str:
        """Why the slave is not ours; empty when it is."""
        log = self._log
        if handshake.cluster != log.cluster or handshake.broker != log.broker:
            return f"{handshake.cluster}/{handshake.broker} is not {log.cluster}/{log.broker}"
        if handshake.protocol_version != events.PROTOCOL_VERSION:
            return f"protocol version {handshake.protocol_version}, this master speaks {events.PROTOCOL_VERSION}"
        if handshake.segment_bytes != log.segment_bytes:
            return f"segments of {handshake.segment_bytes:,} bytes, this master has {log.segment_bytes:,}"
        if not 0 <= handshake.min_offset <= handshake.flushed <= handshake.end:
            return f"offsets out of order: {handshake.min_offset}, {handshake.flushed}, {handshake.end}"
        for low, high in handshake.missing_ranges or ():
            if not handshake.min_offset <= low < high <= handshake.end:
                return f"lacks [{low}, {high}), which does not lie in its log"
        for digest in handshake.digests:
            if not digest.start < digest.end <= self._segment_end(digest.start):
                return f"a digest of [{digest.start}, {digest.end}), which does not lie in one segment"
        return ""

    def _stranger(self, handshake: Handshake) -> str:
        """Why the replica is not of this group, or is not the one that it says; empty when it is."""
        log = self._log
        if handshake.birth and handshake.birth != log.birth:
            ours = f"that of {log.node} is {log.birth}" if log.birth else f"{log.node} leads without one"
            births = f"the group record of {handshake.node} has the birth {handshake.birth}, and {ours}"
            return f"{births}; empty the data_dir of {handshake.node} to join this group"
        if handshake.end < self._acknowledged:
            less = f"{handshake.node} holds {handshake.end:,} bytes, and acknowledged {self._acknowledged:,} under this replica id"
            return f"{less}: its disk is a copy; give it another identity: dittomq log new-identity STORE"
        return ""

    def _judge_digests(self, event: DigestsCompared) -> list[Command]:
        assert self._handshake is not None
        if event.differs is not None:
            self.state = MasterSessionState.PROBING
            return self._ask(event.differs.start, event.differs.end)
        handshake, self.state = self._handshake, MasterSessionState.STREAMING
        self._sent = self._received = handshake.end
        self._flushed = handshake.flushed
        handshake_result = self._handshake_result(SyncAction.STREAM, handshake.end, "epoch history and digests agree")
        both = PhysicalOffset(max(self._log.min_offset, handshake.min_offset))
        equal_end = max(both, event.equal_end)
        if equal_end < self._check.verified:  # from there on this log was damaged: it is to be compared again
            self._check = self._new_check(begin=both, verified=equal_end)
        self._check.verified = equal_end
        counted = RecordAck(handshake.end, handshake.flushed, None, handshake.adopted == self._epoch)
        return [handshake_result, RecordVerified(equal_end), counted, *self._pump(), *self._send_topics()]

    def _ask(self, start: PhysicalOffset, end: PhysicalOffset) -> list[Command]:
        """For the leaves of what is searched, a slice at a time: neither side hears anything while the other reads."""
        self._probe = LeafProbe(start, PhysicalOffset(min(end, start + _PROBE_BYTES)))
        self._unsearched = self._probe.end, end
        return [SendProbe(self._probe)]

    def _compare_leaves(self, leaves: LeafDigests) -> list[Command]:
        """How long comparing takes is up to us: only the range that was asked for is compared, and once."""
        probe, self._probe = self._probe, None
        if probe != LeafProbe(leaves.start, leaves.end):
            return self._drop(f"leaves of [{leaves.start}, {leaves.end}), which were not asked for")
        return [CompareLeaves(leaves)]

    def _judge_leaves(self, event: LeavesCompared) -> list[Command]:
        start, end = self._unsearched
        if event.truncate_to is None and start < end:
            return self._ask(start, end)
        if event.truncate_to is None:  # no proof of anything; the slave comes back and all is compared again
            return self._drop("the bytes of one copy changed while they were compared")
        if not event.ours_whole:
            where = f"the copies differ by content from {event.truncate_to:,}, where this master's bytes are damaged"
            return self._drop(f"{where}; it fetches them from a copy that has them")
        return self._send_truncate(event.truncate_to, "the copies differ by content")

    def _send_truncate(self, to: PhysicalOffset, reason: str) -> list[Command]:
        self.state = MasterSessionState.TRUNCATING
        self._acknowledged = min(self._acknowledged, to)
        return [self._handshake_result(SyncAction.TRUNCATE, to, reason)]

    def _send_resync(self, handshake: Handshake, reason: str) -> list[Command]:
        """Only who is no member: what it holds counts until then. The copy that sends its handshake next is another replica."""
        if self._is_member:
            return [RemoveMember(handshake.node), *self._drop(f"{reason}; it leaves the in-sync set first, then it is to copy this log")]
        self.state, self._acknowledged = MasterSessionState.TRUNCATING, PhysicalOffset(0)
        return [self._handshake_result(SyncAction.RESYNC, self._log.min_offset, reason)]

    def _acked(self, ack: SlaveAck) -> list[Command]:
        if ack.epoch != self._epoch:
            return self._drop(f"an ack of epoch {ack.epoch} in epoch {self._epoch}")
        if not self._received <= ack.received <= self._sent:
            return self._drop(f"ack {ack.received} outside [{self._received}, {self._sent}]")
        if not self._flushed <= ack.flushed <= ack.received:
            return self._drop(f"flushed {ack.flushed} outside [{self._flushed}, {ack.received}]")
        self._received, self._flushed = ack.received, ack.flushed
        if ack.begin is not None:
            self._check.pass_dropped(min(ack.begin, ack.flushed))
        for low, high in ack.missing_now or ():
            if not 0 <= low < high <= ack.received:
                return self._drop(f"lacks [{low}, {high}), which does not lie in its log")
        commands: list[Command] = [RecordAck(ack.received, ack.flushed, ack.applied, ack.adopted == self._epoch, ack.missing_now)]
        if ack.reverify_from is not None:
            self._check.reverify_from(ack.reverify_from)
            commands.append(RecordVerified(self._check.verified))
        if ack.digest is not None:
            commands += self._judge_heartbeat(ack.digest)
        return commands

    def _judge_heartbeat(self, theirs: RangeDigest) -> list[Command]:
        match self._check.answered(theirs):
            case Answer.NOTHING:
                return []
            case Answer.EQUAL:
                return [RecordVerified(self._check.verified)]
            case Answer.DIFFERENT:
                return self._drop(f"the copies differ by content in [{theirs.start:,}, {theirs.end:,})")

    def _pump(self) -> list[Command]:
        """The next chunk, when there is one and the window has room; otherwise what is confirmed of the bytes that were sent.

        A chunk may be held back by its driver: what is confirmed is told meanwhile.
        """
        if self.state is not MasterSessionState.STREAMING:
            return []
        room = self._limits.max_inflight_bytes - (self._sent - self._received)
        if not self._sending and self._sent < self._end and room > 0:
            self._sending, self._confirmed_sending = True, self._confirmed
            return [self._chunk(min(self._end, self._next_border(self._sent)))]
        if self._confirmed_sent < min(self._confirmed, self._sent):
            self._confirmed_sent = self._confirmed
            return [self._chunk(self._sent)]
        return []

    def _chunk(self, limit: PhysicalOffset) -> Command:
        epoch = epoch_at(self._log.epoch_history, self._sent)
        return SendChunk(epoch, self._sent, limit, self._confirmed, self._end)

    def _missing_range(self, damaged: BytesDamaged) -> Command:
        """What is behind it follows; what lies in it the slave gets from whoever has it whole."""
        assert self._sending
        assert damaged.start == self._sent < damaged.end
        self._confirmed_sent = self._confirmed
        end = min(damaged.end, self._next_border(self._sent))
        return SendMissingRange(MissingRange(epoch_at(self._log.epoch_history, self._sent), self._sent, end, self._confirmed, self._end))

    def _next_border(self, position: PhysicalOffset) -> PhysicalOffset:
        """The next end of a segment or of an epoch: no chunk crosses either."""
        return epoch_end_offset(self._log.epoch_history, position, self._segment_end(position))

    def _segment_end(self, position: PhysicalOffset) -> int:
        size = self._log.segment_bytes
        return (position // size + 1) * size

    def _tick(self, now: float) -> list[Command]:
        due = now - self._beat_at >= self._limits.heartbeat_s
        if self.state is MasterSessionState.COMPARING:
            return self._let_wait(now) if due else []
        # What a slave cuts it saves before, and then it reads what it has left; nobody waits for it.
        if self.state is MasterSessionState.TRUNCATING:
            return []
        if now - self._received_at > self._limits.silence_s:
            return self._drop(f"silent for {now - self._received_at:.0f} s")
        if self.state is not MasterSessionState.STREAMING:
            return []
        if self._is_time_to_compare(now):
            self._digest_at = now
            if not self._check.lets_pass():
                self._beat_at = now
                return [PrepareHeartbeat(*self._check.begin_step(self._flushed))]
        if not due:  # a slow disk keeps no heartbeat back
            return []
        self._beat_at = now
        return [self._heartbeat(None)]

    def _is_time_to_compare(self, now: float) -> bool:
        since = now - self._digest_at
        return since >= self._limits.digest_s or (since >= _STEP_S and self._check.has_more_than_a_step(self._flushed))

    def _let_wait(self, now: float) -> list[Command]:
        """It takes as long as the disk takes to read what the handshake digests."""
        self._beat_at = now
        return [self._handshake_result(SyncAction.WAIT, PhysicalOffset(0), "the digests of its handshake are compared")]

    def _heartbeat(self, digest: RangeDigest | None) -> Command:
        return SendHeartbeat(Heartbeat(self._epoch, self._end, self._confirmed, digest, self._topics))

    def _send_topics(self) -> list[Command]:
        """A slave pulls new topics when it hears of them, not at its next round: the master's disk may be gone by then."""
        if self.state is not MasterSessionState.STREAMING or self._topics == self._topics_sent:
            return []
        self._topics_sent = self._topics
        return [self._heartbeat(None)]

    def _handshake_result(self, action: SyncAction, start: PhysicalOffset, reason: str) -> Command:
        heartbeat_ms = int(self._limits.heartbeat_s * 1000)
        end = self._end if action is SyncAction.RESYNC else None
        log = self._log
        handshake_result = HandshakeResult(
            action, start, reason, self._epoch, log.epoch_history, heartbeat_ms, end, log.replica_uuid, log.birth, log.counts
        )
        return SendHandshakeResult(handshake_result)

    def _drop(self, reason: str) -> list[Command]:
        self.state = MasterSessionState.ENDED
        return [EndSlaveStream(reason)]
