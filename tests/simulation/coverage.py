"""What came about in a run, seen from outside: on the wire, on disks, in what clients were told, in logs. Never in the plan."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from dittomq._pb.ditto.messaging.v1.messaging_pb2 import PublishStreamResponse
from dittomq._pb.ditto.replication.v1.replication_pb2 import (
    SYNC_ACTION_STREAM,
    Handshake,
    ReplicateRequest,
    ReplicateResponse,
)
from dittomq.errors import OutcomeHandle
from dittomq.message import Ack, PutStatus
from services.master.config import Mode
from tests.simulation.disk import Deed, Operation
from tests.simulation.disk_snapshots import ANEW
from tests.simulation.history import Publish
from tests.simulation.shapes import Shape, machine_of

_SLOW_SYNC_S = 0.1
SAVED_TAIL = "dittomq/tail-"
_SEGMENT = "commitlog/"


class Happened(Enum):
    """Something that the seeds of CI must bring about, in the words of the page that lists them."""

    CUT_ACROSS_A_SEGMENT = "cut across a segment"
    KILLED_BEFORE_CONFIRMED_WAS_HEARD = "kill before the moved confirmed end was heard"
    UNSYNCED_HOLE = "unsynced hole"
    DEGRADED = "degrade in"
    DEGRADED_NO_MORE = "degrade out"
    RESYNC_INTERRUPTED = "resync interrupted"
    COPIED_ANEW = "resync ended"
    DEDUP_AFTER_RESTART = "dedup after restart"
    DEDUP_AFTER_ELECTION = "dedup after an election"
    FORGOTTEN_SENT_AGAIN = "first message of a forgotten producer sent again"
    SWITCHED_OVER = "switchover"
    OLD_MASTER_CAME_BACK = "old master follows after a failover"
    FENCED_CAME_BACK = "master deposed while it lived, and following later"
    SLOW_FSYNC = "slow fsync"
    DISK_FULL_ON_SLAVE = "disk full on the slave"
    FAILED_FSYNC = "failed fsync"
    ROT_MENDED = "rotten record mended from another copy"
    FRAME_STORED_IN_PART = "frame sent again of which the first part was stored"
    TAIL_TAKEN_OVER = "tail taken over by a candidate"


class Witness:
    """Writes down what happened in one run."""

    def __init__(self, shape: Shape, end_of: Callable[[str], int]) -> None:
        """`end_of` tells where the log on a machine's disk ends now."""
        self.seen: dict[Happened, None] = {}
        self._shape = shape
        self._end_of = end_of
        self._handshake: dict[str, Handshake] = {}
        self._heard_confirmed: dict[str, int] = {}
        self._confirmed_sent = 0
        self._told_by = ""
        self._holders: list[str] = []
        self._degraded_in: int | None = None
        self._leader: dict[int, str] = {}
        self._cutting_to: dict[str, int] = {}
        self._copying: set[str] = set()
        self._following: set[str] = set()
        self._rotten = False
        self._fell: set[str] = set()  # crashed while they led
        self._stepped_down: set[str] = set()
        self._replaced: set[str] = set()
        self._passed_over: set[str] = set()  # another node came to lead, and these had neither crashed nor stepped down

    def slave_said(self, slave: str, master: str, said: ReplicateRequest) -> None:
        """A slave said something to its master."""
        if said.WhichOneof("event") == "handshake":
            self._handshake[slave] = said.handshake

    def master_said(self, master: str, slave: str, said: ReplicateResponse) -> None:
        """A master said something to a slave."""
        if said.WhichOneof("event") == "handshake_result" and said.handshake_result.action == SYNC_ACTION_STREAM:
            self._following.add(slave)
        match said.WhichOneof("event"):
            case "handshake_result" if said.handshake_result.action == SYNC_ACTION_STREAM and slave in self._replaced:
                self._replaced.remove(slave)
                self._note(Happened.OLD_MASTER_CAME_BACK)
            case "handshake_result" if said.handshake_result.action == SYNC_ACTION_STREAM and slave in self._passed_over:
                self._passed_over.remove(slave)
                self._note(Happened.FENCED_CAME_BACK)
            case "chunk":
                self._hears(slave, said.chunk.confirmed_offset)
            case "heartbeat":
                self._hears(slave, said.heartbeat.confirmed_offset)

    def frame_answered(self, answer: PublishStreamResponse) -> None:
        """A client got an outcome of a frame."""
        if not answer.stored.duplicate and any(run.duplicate for run in answer.stored.runs):
            self._note(Happened.FRAME_STORED_IN_PART)

    def receipt(self, publish: Publish) -> None:
        """A client got a receipt."""
        receipt = publish.receipt
        assert receipt is not None
        replicated = Ack.REPLICA_FLUSHED in receipt.levels_reached and self._shape.replication.asked_copies > 1
        end = receipt.physical_offset + receipt.record_bytes
        if replicated and end > self._confirmed_sent:
            self._confirmed_sent = end
            self._told_by, *self._holders = (machine_of(copy.node) for copy in receipt.copies)
        if receipt.status is PutStatus.SLAVE_NOT_AVAILABLE and self._shape.replication.mode is Mode.SYNC_MASTER:
            self._degraded_in = receipt.epoch
            self._note(Happened.DEGRADED)
        elif replicated and not receipt.duplicate and receipt.epoch == self._degraded_in:
            self._note(Happened.DEGRADED_NO_MORE)
        newest = max(self._leader, default=0)
        if receipt.duplicate and receipt.epoch < newest:
            restarted = self._leader.get(receipt.epoch) == self._leader[newest]
            self._note(Happened.DEDUP_AFTER_RESTART if restarted else Happened.DEDUP_AFTER_ELECTION)

    def expired(self, sent_again: OutcomeHandle) -> None:
        """A client sent a message again, and its producer is forgotten."""
        if sent_again.sequence == 0:
            self._note(Happened.FORGOTTEN_SENT_AGAIN)

    def logged(self, machine: str, name: str, fields: Mapping[str, Any]) -> None:
        """A service wrote a line into its log."""
        match name:
            case "epoch_opened":
                self._following.discard(machine)
                self._led_before(machine)
                self._leader[fields["epoch"]] = machine
            case "log_truncated" | "store_opened":
                self._cutting_to.pop(machine, None)
            case "stream_ended" if fields["reason"].startswith(f"the disk of {fields['node']} has "):
                self._note(Happened.DISK_FULL_ON_SLAVE)
            case "switchover_began":
                self._stepped_down.add(machine)
            case "range_repaired" if fields["source"] != fields["node"] and self._rotten:
                self._note(Happened.ROT_MENDED)
            case "log_tail_fetched":
                self._note(Happened.TAIL_TAKEN_OVER)

    def crashed(self, machine: str, holes: list[str]) -> None:
        """A process was killed, or its machine lost power; `holes` arose in these files."""
        self._following.discard(machine)
        if any(path.startswith(_SEGMENT) for path in holes):
            self._note(Happened.UNSYNCED_HOLE)
        if machine in self._copying:
            self._note(Happened.RESYNC_INTERRUPTED)
        leads = machine == self._leader.get(max(self._leader, default=0))
        if leads:
            self._fell.add(machine)
        if leads and machine == self._told_by and not any(self._has_heard(holder) for holder in self._holders):
            self._note(Happened.KILLED_BEFORE_CONFIRMED_WAS_HEARD)

    def renamed(self, machine: str, operation: Operation) -> None:
        """A name on a disk changed."""
        if operation.new_name.startswith(ANEW):
            self._copying.add(machine)
        elif operation.deed is Deed.RENAMED and f"{operation.path}/" == ANEW:
            self._copying.discard(machine)
            self._note(Happened.COPIED_ANEW)
        if operation.deed is Deed.MADE and operation.path.startswith(SAVED_TAIL):
            self._cutting_to[machine] = int(operation.path.removeprefix(SAVED_TAIL).partition("-")[0])
        elif operation.deed is Deed.REMOVED and operation.path.startswith(_SEGMENT):
            truncate_to = self._cutting_to.get(machine)
            if truncate_to is not None and int(operation.path.removeprefix(_SEGMENT)) >= truncate_to:
                self._note(Happened.CUT_ACROSS_A_SEGMENT)

    def rotted(self) -> None:
        """A bit of a record flipped."""
        self._rotten = True

    def synced(self, machine: str, path: str, seconds: float) -> None:
        """A sync of that file takes so long. Somebody waits for it only where it is the log of one that leads or follows."""
        leads = machine == self._leader.get(max(self._leader, default=0))
        if seconds >= _SLOW_SYNC_S and path.startswith(_SEGMENT) and (leads or machine in self._following):
            self._note(Happened.SLOW_FSYNC)

    def sync_failed(self) -> None:
        """A sync failed."""
        self._note(Happened.FAILED_FSYNC)

    def _hears(self, slave: str, confirmed: int) -> None:
        self._heard_confirmed[slave] = max(self._heard_confirmed.get(slave, 0), confirmed)

    def _has_heard(self, holder: str) -> bool:
        """Whether it may know that what was told last is confirmed."""
        return self._heard_confirmed.get(holder, 0) >= self._confirmed_sent

    def _led_before(self, machine: str) -> None:
        """Somebody leads from now on: in whose place?"""
        before = self._leader.get(max(self._leader, default=0), machine)
        if before != machine and before in self._stepped_down:
            self._note(Happened.SWITCHED_OVER)
        elif before != machine and before in self._fell:
            self._replaced.add(before)
        elif before != machine:
            self._passed_over.add(before)
        self._fell.clear()
        self._stepped_down.clear()
        self._replaced.discard(machine)
        self._passed_over.discard(machine)

    def _note(self, what: Happened) -> None:
        self.seen[what] = None
