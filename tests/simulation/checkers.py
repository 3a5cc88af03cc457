"""What must hold of every run in the end and after each crash: clients' history is held against bytes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Protocol

from dittomq.message import Receipt
from tests.simulation.history import Harm, History, Outcome, Publish, Read
from tests.simulation.invariants import Broken, Invariant
from tests.simulation.parser import Malformed, ParsedLog, ParsedRecord, parse_log
from tests.simulation.workload import REMADE

Files = Mapping[str, bytes]
Queue = tuple[str, int]


class HeldRecords(Protocol):
    """A copy, record by record."""

    def record(self, offset: int, size: int) -> ParsedRecord:
        """The record that lies there as written; raises Malformed."""
        ...


def check_crashed_copy(history: History, node: str, copy_there: HeldRecords) -> Iterator[Broken]:
    """A copy as a crash left it, before anyone repairs it, holds all that receipts say is safe there."""
    for publish in history.publishes:
        receipt = publish.receipt
        if receipt is None or not history.must_survive(publish):
            continue
        if any(copy.node == node and history.is_safe(publish, copy) for copy in receipt.copies):
            try:
                record = copy_there.record(receipt.physical_offset, receipt.record_bytes)
            except Malformed as problem:
                where = f"on {node} at {receipt.physical_offset}"
                yield Broken(Invariant.I1, f"{publish.name} was acknowledged {where} and is not there: {problem}")
            else:
                yield from _differences(publish, receipt, record, node)


def check_given_up(history: History, node: str, copy_there: HeldRecords) -> Iterator[Broken]:
    """A master that leads only at its operator's word lacks nothing that cannot be lost.

    What bits have flipped in there is not given up: it is fetched from others.
    """
    for publish in history.publishes:
        receipt = publish.receipt
        if receipt is None or not history.must_survive(publish) or (node, receipt.physical_offset) in history.rotten:
            continue
        try:
            copy_there.record(receipt.physical_offset, receipt.record_bytes)
        except Malformed as problem:
            yield Broken(Invariant.I1, f"{publish.name} ({_promise(receipt)}) is to be given up for {node} to lead: {problem}")


def check_final(history: History, copies: Mapping[str, Files]) -> Iterator[Broken]:
    """After everything healed: copies are equal, and they hold what clients were told and nothing else."""
    logs = {}
    for node, files in copies.items():
        try:
            logs[node] = parse_log(files)
        except Malformed as problem:
            yield Broken(Invariant.I4, f"{node}: {problem}")
    if len(logs) < len(copies):
        return
    yield from _unequal(logs)
    log = logs[history.master]
    if log.start > history.kept_from:
        yield Broken(Invariant.I1, f"the log begins at {log.start}, and only what lies below {history.kept_from} was old enough to go")
    yield from _offsets_not_dense(history, log)
    yield from _wrong_publishes(history, log)
    yield from _out_of_order(history)
    yield from _mixed_epochs(history)
    yield from _undone_reads(history, log)
    yield from _left_out_by_tag(history, log)
    for node, reads in history.final_reads.items():
        held = logs[node]
        got = [_place(read) for read in reads if read.physical_offset >= held.start and read.topic != REMADE]
        lies = [_place(record) for record in held.records if record.topic != REMADE]
        if sorted(got) != sorted(lies):
            yield Broken(Invariant.I4, f"{node} serves {len(got)} messages and the log holds {len(lies)}, or they differ")
        yield from _made_again(history, node, held)


def _place(found: Read | ParsedRecord) -> tuple[str, int, int, bytes]:
    return found.topic, found.queue, found.queue_offset, found.body


def _made_again(history: History, node: str, log: ParsedLog) -> Iterator[Broken]:
    """Of the topic that is deleted and made again a node serves what was sent since, from some message on all of a queue."""
    got = {_place(read) for read in history.final_reads[node] if read.topic == REMADE}
    lies = {_place(record) for record in log.records if record.topic == REMADE}
    firsts: dict[int, int] = {}
    for _, queue, offset, _ in got:
        firsts[queue] = min(offset, firsts.get(queue, offset))
    wanted = {place for place in lies if place[1] in firsts and place[2] >= firsts[place[1]]}
    if got - lies or wanted - got:
        yield Broken(Invariant.I4, f"{node} serves of {REMADE} {len(got)} messages, {len(wanted)} lie there from its first one on")
    done = [each.at for each in history.deletions if each.is_done]
    last_end = max((each.end for each in history.deletions), default=0.0)
    is_sure = bool(done) and not history.changed_since(max(done)) and not history.has_seen(Harm.LOSS_ACCEPTED, Harm.DISK_LOST)
    bodies = {body for *_, body in got}
    for publish in history.publishes:
        if publish.topic != REMADE or publish.told_at is None or publish.receipt is None:
            continue
        if is_sure and publish.told_at < max(done) and publish.body in bodies:
            yield Broken(Invariant.I13, f"{node} serves {publish.name}, which was deleted with its topic at {max(done):.6f}")
        survives = history.must_survive(publish) and publish.receipt.physical_offset >= log.start
        if survives and publish.at > last_end and publish.body not in bodies and not history.may_lack_topics:
            yield Broken(Invariant.I13, f"{node} does not serve {publish.name}, sent after the topic was deleted for the last time")


def _left_out_by_tag(history: History, log: ParsedLog) -> Iterator[Broken]:
    """Who asks for one tag gets all messages that have it."""
    harms = (Harm.LOSS_ACCEPTED, Harm.DISK_LOST, *(() if history.syncs_matter else (Harm.POWER_LOST, Harm.SYNC_FAILED)))
    if history.has_seen(*harms):
        return
    tagged: dict[Queue, dict[int, bytes]] = defaultdict(dict)
    for record in log.records:
        tagged[record.topic, record.queue][record.queue_offset] = record.properties
    for page in history.filtered:
        for offset, properties in tagged[page.topic, page.queue].items():
            if offset in page.span and offset not in page.offsets and f"TAGS\x01{page.tag}\x02".encode() in properties:
                yield Broken(Invariant.I12, f"{page.node} left {page.topic} queue {page.queue} offset {offset} out, which has {page.tag}")


def _unequal(logs: Mapping[str, ParsedLog]) -> Iterator[Broken]:
    start = max(log.start for log in logs.values())
    (first, reference), *others = logs.items()
    for node, log in others:
        if log.end != reference.end:
            yield Broken(Invariant.I4, f"{node} ends at {log.end} and {first} at {reference.end}")
        mine, theirs = log.content[start - log.start :], reference.content[start - reference.start :]
        if mine[: len(theirs)] != theirs[: len(mine)]:
            at = next(at for at, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other)
            yield Broken(Invariant.I4, f"{node} and {first} differ at byte {start + at}")


def _offsets_not_dense(history: History, log: ParsedLog) -> Iterator[Broken]:
    """Each queue counts on by one, but for what a master left out that could not read its log."""
    following: dict[Queue, int] = {}
    newest: dict[Queue, int] = {}
    for record in log.records:
        key, at = (record.topic, record.queue), record.physical_offset
        due = following.setdefault(key, record.queue_offset if log.start else 0)
        most = due + sum(each.offsets for each in history.reservations if newest.get(key, -1) < each.start <= at)
        if not due <= record.queue_offset <= most:
            yield Broken(Invariant.I3, f"queue {key} goes on with offset {record.queue_offset} where {due} is next")
        following[key], newest[key] = record.queue_offset + 1, at


def _wrong_publishes(history: History, log: ParsedLog) -> Iterator[Broken]:
    found: dict[bytes, list[ParsedRecord]] = defaultdict(list)
    for record in log.records:
        found[record.body].append(record)
    for publish in history.publishes:
        records = found.pop(publish.body, [])
        if len(records) > 1:
            yield Broken(
                Invariant.I2, f"{publish.name} is stored {len(records)} times, at {[record.physical_offset for record in records]}"
            )
        if records and publish.outcome is Outcome.NOT_STORED and history.must_stay_away(publish):
            yield Broken(Invariant.I8, f"{publish.name} was reported as not stored and is at {records[0].physical_offset}")
        if publish.receipt is None:
            continue
        survives = history.must_survive(publish)
        may_be_another_try = publish.late or history.changed_since(publish.at)  # the one that was answered may be lost
        if records and (survives or not may_be_another_try):
            yield from _differences(publish, publish.receipt, records[0], history.master)
        elif survives:
            yield Broken(Invariant.I1, f"{publish.name} was acknowledged ({_promise(publish.receipt)}) and is lost")
    for body, records in found.items():
        yield Broken(Invariant.I2, f"nobody published {body[:20]!r}, which is at {records[0].physical_offset}")


def _out_of_order(history: History) -> Iterator[Broken]:
    """One producer's messages lie in a queue in the order in which it published them."""
    last: dict[tuple[str, str, int], Publish] = {}
    for publish in history.publishes:
        receipt = publish.receipt
        if receipt is None or publish.late or not publish.ordered or not history.must_survive(publish):
            continue
        key = (publish.client, receipt.topic, receipt.queue)
        before = last.get(key)
        if before is not None and before.receipt is not None and before.receipt.queue_offset >= receipt.queue_offset:
            yield Broken(Invariant.I3, f"{publish.name} was published after {before.name} and lies before it in queue {receipt.queue}")
        last[key] = publish


def _mixed_epochs(history: History) -> Iterator[Broken]:
    """Epochs grow along the log."""
    receipts = [publish.receipt for publish in history.publishes if publish.receipt is not None and history.must_survive(publish)]
    receipts.sort(key=lambda receipt: receipt.physical_offset)
    for one, next_one in pairwise(receipts):
        if one.epoch > next_one.epoch:
            earlier = f"offset {one.physical_offset} was acknowledged in epoch {one.epoch}"
            yield Broken(Invariant.I5, f"{earlier}, {next_one.physical_offset} in {next_one.epoch}")


def _undone_reads(history: History, log: ParsedLog) -> Iterator[Broken]:
    lies = {(record.topic, record.queue, record.queue_offset): record.body for record in log.records}
    sent = {publish.body: publish for publish in history.publishes}
    for read in history.reads:
        publish = sent.get(read.body)
        where = f"{read.topic} queue {read.queue} offset {read.queue_offset}"
        if publish is None:
            yield Broken(Invariant.I7, f"{read.node} served {read.body[:20]!r} at {where}, which nobody published")
            continue
        if read.labels != publish.labels:
            yield Broken(Invariant.I7, f"{read.node} served {publish.name} with {read.labels}, and it was sent with {publish.labels}")
        if read.may_be_undone or read.physical_offset < log.start or not _confirmed_for_good(history, read, publish):
            continue
        if lies.get((read.topic, read.queue, read.queue_offset)) != read.body:
            yield Broken(Invariant.I6, f"{read.node} served {publish.name} as confirmed at {where}, and it is not there any more")


def _confirmed_for_good(history: History, read: Read, publish: Publish) -> bool:
    """Whether what was confirmed when it was read outlives what happened since.

    A receipt may be that of a later try: the first one was read, and lost with its answer.
    """
    at, receipt = read.at, publish.receipt
    if receipt is not None and receipt.physical_offset == read.physical_offset and history.must_survive(publish):
        return True
    masters = history.masters_since(at)
    if history.has_seen(Harm.LOSS_ACCEPTED) or history.any_harmed(masters, at, Harm.DISK_LOST):
        return False
    return history.syncs_matter or not history.any_harmed(masters, at, Harm.POWER_LOST, Harm.SYNC_FAILED)


def _differences(publish: Publish, receipt: Receipt, record: ParsedRecord, node: str) -> Iterator[Broken]:
    told = (receipt.topic, receipt.queue, receipt.queue_offset, receipt.physical_offset, receipt.record_bytes, publish.body)
    there = (record.topic, record.queue, record.queue_offset, record.physical_offset, record.size, record.body)
    if told != there:
        yield Broken(Invariant.I1, f"{publish.name}: the receipt says {told[:-1]}, and {node} has {there[:-1]}, body {record.body[:20]!r}")


def _promise(receipt: Receipt) -> str:
    return f"{receipt.status}, epoch {receipt.epoch}, {', '.join(map(str, receipt.copies))}"
