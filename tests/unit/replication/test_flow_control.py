"""A slave that takes its time: what a master keeps for it is bounded, and what it has to hear it hears."""

from hypothesis import given
from hypothesis import strategies as st

from dittomq.epoch_history import EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import PROTOCOL_VERSION, Chunk, Handshake, SlaveAck
from dittomq.replication.master_events import ChunkSent, Command, DigestsCompared, EndSlaveStream, LogMoved, RecordAck, SendChunk
from dittomq.replication.master_log import MasterLog
from dittomq.replication.master_session import MasterSession, SessionLimits

WINDOW, CHUNK, RECORD = 1_000, 100, 10
EPOCH_HISTORY = (EpochEntry(Epoch(1), 0, 7, PhysicalOffset(0)),)
STEPS = st.lists(st.sampled_from(["grow", "confirm", "send", "take", "ack"]), min_size=1, max_size=400)


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


class Line:
    """A master's session and a slave, with as many chunks between them as the session lets go."""

    def __init__(self) -> None:
        log = MasterLog("c", "a", 1 << 20, at(0), at(0), at(0), EPOCH_HISTORY, "a/0", "u0")
        self.session = MasterSession(log, SessionLimits(max_inflight_bytes=WINDOW), 0.0)
        self.end = self.confirmed = 0
        self.asked: SendChunk | None = None
        self.under_way: list[Chunk] = []
        self.sent = self.taken = self.acked = 0
        self.heard_confirmed = 0
        handshake = Handshake("c", "a", 1, "u", PROTOCOL_VERSION, at(0), at(0), at(0), at(0), EPOCH_HISTORY, (), at(0), "", 1 << 20)
        self.obey([*self.session.handle(handshake, 0.0), *self.session.handle(DigestsCompared(at(0), None), 0.0)])

    def obey(self, commands: list[Command]) -> None:
        for command in commands:
            assert not isinstance(command, EndSlaveStream), command.reason
            if isinstance(command, SendChunk) and command.limit == command.start:
                self.under_way.append(Chunk(Epoch(1), command.start, 0, b"", at(self.confirmed), at(self.end)))
            elif isinstance(command, SendChunk):
                assert self.asked is None, "one chunk at a time"
                self.asked = command

    def do(self, step: str) -> None:
        match step:
            case "grow":
                self.end += 3 * RECORD
                self.moved()
            case "confirm":
                self.confirmed = self.taken
                self.moved()
            case "send" if self.asked is not None:
                command, self.asked = self.asked, None
                data = bytes(min(CHUNK, command.limit - command.start))
                self.under_way.append(Chunk(Epoch(1), command.start, 0, data, at(self.confirmed), at(self.end)))
                self.sent = command.start + len(data)
                self.obey(self.session.handle(ChunkSent(at(self.sent)), 0.0))
            case "take" if self.under_way:
                chunk = self.under_way.pop(0)
                assert chunk.offset <= self.taken, "no chunk leaves a gap"
                self.taken = max(self.taken, chunk.offset + len(chunk.data))
                self.heard_confirmed = max(self.heard_confirmed, min(chunk.confirmed, self.taken))
            case "ack":
                self.acked = self.taken
                self.obey(self.session.handle(SlaveAck(Epoch(1), at(self.acked), at(self.acked), at(0)), 0.0))

    def moved(self) -> None:
        self.obey(self.session.handle(LogMoved(at(self.end), at(self.confirmed), None), 0.0))


@given(STEPS)
def test_no_more_is_under_way_than_the_window_and_one_chunk(steps: list[str]) -> None:
    line = Line()
    for step in ["grow"] * 100 + steps:
        line.do(step)

        assert line.sent - line.acked <= WINDOW + CHUNK


@given(STEPS, st.sampled_from([(), ("send",)]))
def test_what_is_confirmed_of_the_bytes_it_holds_a_slave_hears_without_another_chunk(steps: list[str], more: tuple[str, ...]) -> None:
    line = Line()
    for step in ["grow"] * 100 + steps:
        line.do(step)
    held_back = line.asked

    line.do("confirm")
    for step in more:
        line.do(step)
    while line.under_way:
        line.do("take")

    assert line.heard_confirmed >= line.confirmed
    assert more or line.asked is held_back


def test_acks_count_while_a_chunk_is_held_back() -> None:
    line = Line()
    for step in ("grow", "grow", "send", "grow", "take"):
        line.do(step)

    counted = line.session.handle(SlaveAck(Epoch(1), at(line.taken), at(line.taken), at(0)), 0.0)

    assert RecordAck(at(line.taken), at(line.taken), at(0), adopted=False) in counted
