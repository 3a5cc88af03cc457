"""Checks that need not wait for the end: each thing a client or a replica is told is held against the disks at that moment."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dittomq._pb.ditto.replication.v1.replication_pb2 import SYNC_ACTION_STREAM, ReplicateRequest, ReplicateResponse
from dittomq.client import Page
from dittomq.group_record import GroupRecord
from dittomq.message import Ack, CopyState, PutStatus, Receipt
from dittomq.message import Copy as NamedCopy
from tests.simulation.disk import Deed, Inode, Operation
from tests.simulation.disk_snapshots import LOG, Copy
from tests.simulation.history import Harm, History, Publish, Read
from tests.simulation.invariants import Broken, Invariant
from tests.simulation.parser import Malformed, parse_record
from tests.simulation.shapes import Shape, machine_of, name_of
from tests.simulation.slots import Dropped, Slots
from tests.simulation.world import World

TABLES = ("config/topics.json",)  # groups, offsets and delays have no rows yet
MOST_TASKS = 100  # about twice what any process was seen to have, of each
MOST_OPEN_FILES = 160
MOST_CONNECTIONS = 30
_BARE_KEY = re.compile(rb"([{,]\s*)(\d+)\s*:")


class RunningChecks:
    """Judges one run while it runs; `problems` are its findings. Brokers are machines: a0 is the node a/0."""

    def __init__(self, world: World, shape: Shape, history: History, copy: Callable[[str], Copy]) -> None:
        """`copy` is the log on a machine's disk."""
        self.problems: list[Broken] = []
        self.record: GroupRecord | None = None  # as the coordination store has it now
        self._world = world
        self._shape = shape
        self._history = history
        self._copy = copy
        self._acker: dict[int, str] = {}
        self._newest_told: tuple[int, float] = (0, 0.0)
        self._confirmed: dict[tuple[str, int], int] = {}
        self._held_to = 0  # what is confirmed up to there was on disks enough
        self._on_enough_disks: set[bytes] = set()
        self._on_own_disk: set[tuple[str, bytes]] = set()
        self._slots = Slots(shape.replication.max_slot_bytes)
        self._tables: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._makers: dict[tuple[str, tuple[int, ...]], str] = {}  # who had a version of a table first
        self._newest_table: dict[tuple[str, str], tuple[int, ...]] = {}

    # What clients are told.

    def receipt(self, publish: Publish) -> None:
        """A client got a receipt."""
        assert publish.receipt is not None
        self._find(Invariant.I1, self._overstated(publish, publish.receipt))
        self._find(Invariant.I1, self._not_on_copies(publish, publish.receipt))
        self._find(Invariant.I5, self._wrong_acker(publish, publish.receipt))

    def page(self, reads: Sequence[Read], page: Page, asked: int) -> None:
        """A client that asked from some offset on got a page of messages from a node, which said how far its log is confirmed."""
        self._find(Invariant.I12, self._led_past(page, asked))
        self._find(Invariant.I6, self._confirmed_went_back(page.node, page.confirmed))
        self._find(Invariant.I6, self._not_on_its_own_disk(reads))
        if not self._shape.disks_of_confirmed or self._history.has_seen(Harm.DISK_LOST, Harm.LOSS_ACCEPTED):
            return
        self._find(Invariant.I6, self._confirmed_on_too_few_members(page.node, page.confirmed))
        for read in reads:
            if read.physical_offset < self._history.kept_from:
                continue
            if not read.may_be_undone and read.body not in self._on_enough_disks:
                self._find(Invariant.I6, self._on_too_few_disks(read))
                self._on_enough_disks.add(read.body)

    # What replicas tell each other.

    def slave_said(self, slave: str, master: str, said: ReplicateRequest) -> None:
        """Nothing is to be judged before the master has; what it knows of the slave from now on is written down."""
        if said.WhichOneof("event") == "ack":
            life = (master, self._world.nodes[master].lives)
            self._slots.told(slave, life, said.ack.flushed_offset, self._world.loop.time())

    def master_said(self, master: str, slave: str, said: ReplicateResponse) -> None:
        """Told to stream, a slave writes nothing before it has heard so: its copy lies still, and its master's only grows."""
        if said.WhichOneof("event") == "chunk" and self._history.rotten:
            self._find(Invariant.I7, self._rot_sent(master, slave, said.chunk.offset, said.chunk.data))
        handshake_result = said.handshake_result
        if said.WhichOneof("event") != "handshake_result" or handshake_result.action != SYNC_ACTION_STREAM:
            return
        self._slots.streams_from(slave, handshake_result.from_offset)
        ours, theirs = self._copy(master), self._copy(slave)
        start, end = max(ours.begin, theirs.begin), handshake_result.from_offset
        one, other = self._unflipped(ours.content(start, end), start), self._unflipped(theirs.content(start, end), start)
        if one != other:
            at = next(at for at, (mine, its) in enumerate(zip(one, other, strict=True)) if mine != its)
            self._find(Invariant.I4, [f"{slave} is told by {master} to stream from {end} and differs at byte {start + at}"])

    def _rot_sent(self, master: str, slave: str, start: int, data: bytes) -> Iterator[str]:
        """A record in which bits flipped on the master's disk is sent as it was, or not at all."""
        for (node, at), size in self._history.rotten.items():
            if machine_of(node) == master and start <= at and at + size <= start + len(data):
                try:
                    parse_record(data[at - start : at - start + size], at)
                except Malformed as problem:
                    yield f"{master} sends {slave} a record in which bits have flipped: {problem}"

    def _unflipped(self, content: bytes, start: int) -> bytes:
        """Without the records in which bits have flipped, on any disk."""
        if not self._history.rotten:
            return content
        left = bytearray(content)
        for at, end in (*((at, at + size) for (_, at), size in self._history.rotten.items()), *self._history.withheld):
            low, high = max(0, at - start), min(len(left), end - start)
            if low < high:
                left[low:high] = bytes(high - low)
        return bytes(left)

    # What disks show.

    def renamed(self, machine: str, operation: Operation) -> None:
        """A file of a machine got its name; a table is in force from then on. A log that loses its first file keeps all that is young."""
        inode = operation.inode
        if inode is not None and operation.deed is Deed.REMOVED and operation.path.startswith(LOG) and any(inode.read(8, 0)):
            start = int(operation.path.removeprefix(LOG))
            self._find(Invariant.I1, self._dropped_too_early(machine, start, inode))
            self._find(Invariant.I14, self._dropped_for_others(machine, start))
        if inode is not None and operation.target in TABLES:
            content = inode.read(inode.size, 0)
            self._find(Invariant.I11, self._wrong_table(machine, operation.target, content))

    def disk_lost(self, machine: str) -> None:
        """What a machine held before counts no more."""
        self._slots.disk_lost(machine)
        self._newest_table = {key: version for key, version in self._newest_table.items() if key[0] != machine}

    def look_at_processes(self) -> None:
        """Count what each process holds."""
        for name, node in self._world.nodes.items():
            for what, count, most in (
                ("tasks", node.tasks, MOST_TASKS),
                ("open files", node.open_files, MOST_OPEN_FILES),
                ("connections", len(self._world.network.machine(name).sockets), MOST_CONNECTIONS),
            ):
                if count > most:
                    self._find(Invariant.I10, [f"{name} has {count} {what}, and {most} are its bound"])

    def _find(self, invariant: Invariant, found: Sequence[str] | Iterator[str]) -> None:
        now = self._world.loop.time()
        self.problems += (Broken(invariant, f"at {now:.6f}: {what}") for what in found)

    def _overstated(self, publish: Publish, receipt: Receipt) -> Iterator[str]:
        """Levels follow from the copies that the receipt names, and PUT_OK from the level asked for."""
        q = self._shape.replication.asked_copies
        flushed = sum(copy.state is CopyState.FLUSHED for copy in receipt.copies)
        reached = receipt.levels_reached
        if len({copy.node for copy in receipt.copies}) < len(receipt.copies):
            yield f"the receipt of {publish.name} names a copy twice: {', '.join(map(str, receipt.copies))}"
        if (Ack.REPLICA_FLUSHED in reached and flushed < q) or (Ack.REPLICA_RECEIVED in reached and len(receipt.copies) < q):
            yield f"the receipt of {publish.name} claims {q} copies and names {', '.join(map(str, receipt.copies))}"
        if Ack.MASTER_FLUSHED in reached and receipt.copies[0].state is not CopyState.FLUSHED:
            yield f"the receipt of {publish.name} claims that its master has flushed it and names {receipt.copies[0]}"
        if receipt.status is PutStatus.PUT_OK and receipt.asked not in reached:
            yield f"the receipt of {publish.name} says PUT_OK, and {receipt.asked} is not reached"

    def _not_on_copies(self, publish: Publish, receipt: Receipt) -> Iterator[str]:
        if not self._history.must_survive(publish):
            return
        for named in receipt.copies:
            if self._history.is_safe(publish, named):
                yield from self._not_there(publish, receipt, named)

    def _not_there(self, publish: Publish, receipt: Receipt, named: NamedCopy) -> Iterator[str]:
        where = f"{publish.name} was acknowledged as {named} at {receipt.physical_offset}"
        durable = named.state is CopyState.FLUSHED
        try:
            record = self._copy(machine_of(named.node)).record(receipt.physical_offset, receipt.record_bytes, durable=durable)
        except Malformed as problem:
            yield f"{where} and is not there: {problem}"
            return
        if record.body != publish.body:
            yield f"{where}, and there lies {record.body[:20]!r}"

    def _dropped_too_early(self, machine: str, start: int, inode: Inode) -> Iterator[str]:
        """Only retention takes the first of several files. A copy may have other bytes there than were acknowledged later."""
        segments = self._copy(machine).segments()
        if not self._shape.retention.max_age_ms or len(segments) < 2 or start != min(segments):
            return
        end = start + self._shape.segment_bytes
        kept_since = self._world.loop.time() - self._shape.kept_s
        for publish in self._history.publishes:
            receipt = publish.receipt
            if receipt is None or not start <= receipt.physical_offset < end or publish.at <= kept_since:
                continue
            if publish.body in inode.read(receipt.record_bytes, receipt.physical_offset - start):
                yield f"{machine} drops {publish.name}, which was published at {publish.at:.6f}"
        self._history.kept_from = max(self._history.kept_from, end)

    def _dropped_for_others(self, machine: str, start: int) -> Iterator[str]:
        """A master keeps for its members all that they lack, and for other slaves that it has heard so much as the settings say."""
        record, node = self.record, self._world.nodes[machine]
        is_master = record is not None and record.master_node == name_of(machine) and node.may_lead
        segments = self._copy(machine).segments()
        if record is None or not is_master or not self._shape.retention.max_age_ms or len(segments) < 2 or start != min(segments):
            return
        members = {machine_of(member.node) for member in record.members}
        others = {name: name in members for name in self._shape.brokers if name != machine}
        dropped = Dropped((machine, node.lives), start, start + self._shape.segment_bytes, self._copy(machine).end)
        yield from self._slots.broken(dropped, others, self._world.loop.time())

    def _not_on_its_own_disk(self, reads: Sequence[Read]) -> Iterator[str]:
        """A node serves what it holds itself; what it called undoable may be gone since, and so may what it held before a start."""
        for read in reads:
            node, key = self._world.nodes[machine_of(read.node)], (read.node, read.body)
            if key in self._on_own_disk or read.may_be_undone or not node.running or node.started_at > read.at:
                continue
            self._on_own_disk.add(key)
            if read.physical_offset < self._history.kept_from or (read.node, read.physical_offset) in self._history.rotten:
                continue
            try:
                held = self._copy(machine_of(read.node)).record(read.physical_offset, read.record_bytes).body
            except Malformed as problem:
                yield f"{read.node} served what lies at {read.physical_offset} and does not hold it: {problem}"
            else:
                if held != read.body:
                    yield f"{read.node} served {read.body[:20]!r} from {read.physical_offset}, where it holds {held[:20]!r}"

    def _wrong_acker(self, publish: Publish, receipt: Receipt) -> Iterator[str]:
        if receipt.duplicate:  # its epoch is that of an earlier try
            return
        acker = receipt.copies[0].node
        if Ack.REPLICA_RECEIVED not in receipt.levels_reached:
            return  # it promises its own disk, and only what is confirmed is fenced
        first = self._acker.setdefault(receipt.epoch, acker)
        if first != acker:
            yield f"{publish.name} was acknowledged in epoch {receipt.epoch} by {acker}, an earlier message by {first}"
        epoch, told_at = self._newest_told
        if receipt.epoch < epoch and publish.at > told_at:
            yield f"{publish.name} was sent after epoch {epoch} had acknowledged, and acknowledged by {acker} in epoch {receipt.epoch}"
        if receipt.epoch > epoch:
            self._newest_told = (receipt.epoch, self._world.loop.time())

    def _led_past(self, page: Page, asked: int) -> Iterator[str]:
        """Whoever goes on from where the page says got all that lies before, but what was dropped."""
        got = {message.queue_offset for message in page.messages}
        for offset in range(max(asked, page.min_offset), page.next_offset):
            if offset not in got:
                yield f"{page.node} was asked from {asked} on, says to go on with {page.next_offset}, and did not return {offset}"

    def _confirmed_went_back(self, node: str, confirmed: int) -> Iterator[str]:
        key = (node, self._world.nodes[machine_of(node)].lives)
        before = self._confirmed.get(key, 0)
        if confirmed < before and not self._history.has_seen(Harm.DISK_LOST, Harm.LOSS_ACCEPTED) and self._shape.needs_no_operator:
            yield f"{node} said that {before} bytes are confirmed, and then {confirmed}"
        self._confirmed[key] = max(before, confirmed)

    def _members(self) -> tuple[list[str], int]:
        """The machines of the members of the record, and so many of them hold what is confirmed."""
        record = self.record
        if record is None or not self._shape.slaves:
            return [self._shape.brokers[0]], 1
        return [machine_of(member.node) for member in record.members], min(record.needed, self._shape.disks_of_confirmed)

    def _on_too_few_disks(self, read: Read) -> Iterator[str]:
        members, wanted = self._members()
        held = 0
        for machine in members:
            if (name_of(machine), read.physical_offset) in self._history.rotten:
                held += 1
                continue
            try:
                held += self._copy(machine).record(read.physical_offset, read.record_bytes, durable=True).body == read.body
            except Malformed:
                continue
        if held < wanted:
            where = f"{read.topic} queue {read.queue} offset {read.queue_offset}"
            yield f"{read.node} served {where} as confirmed, which the disks of {held} members hold and {wanted} should"

    def _confirmed_on_too_few_members(self, node: str, confirmed: int) -> Iterator[str]:
        """Whatever was ever confirmed is held alike by as many members of the record as it is now; no record is looked at."""
        if confirmed <= self._held_to or self._shape.retention.max_age_ms or self._history.rotten:
            return
        start, self._held_to = self._held_to, confirmed
        members, wanted = self._members()
        copies = [set(self._copy(machine).durable(start, confirmed)) for machine in members]
        whole = {content for stores in copies for content in stores if len(content) == confirmed - start}
        held = max((sum(content in stores for stores in copies) for content in whole), default=0)
        if held < wanted:
            yield f"{node} says that [{start}, {confirmed}) is confirmed, which {held} of {members} hold alike and {wanted} should"

    def _wrong_table(self, machine: str, path: str, content: bytes) -> Iterator[str]:
        table: dict[str, Any] = _loads(content)
        told = table.get("dataVersion")
        if told is None:
            return
        version = (told["stateVersion"], told["counter"], told["timestamp"])
        newest = self._newest_table.get((machine, path), version)
        is_new = version[1] > 0 and (path, version) not in self._makers  # a counter of 0 never held anything
        if is_new and not self._world.nodes[machine].may_lead:
            yield f"{machine} holds version {version} of {path}, which nobody had before, and is a slave"
        self._makers.setdefault((path, version), machine)
        if version < newest:
            yield f"{machine} held version {newest} of {path} and now {version}"
        self._newest_table[machine, path] = version
        known = self._tables.setdefault((path, version), content)
        if known != content:
            yield f"{machine} holds as version {version} of {path} something else than another copy"


def _loads(content: bytes) -> dict[str, Any]:
    """A table's file; integer keys stand without quotes in it."""
    found: dict[str, Any] = json.loads(_BARE_KEY.sub(rb'\1"\2":', content))
    return found
