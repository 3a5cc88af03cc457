"""`dittomq consume`, without a consumer group: nothing is remembered between two runs."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.output import flush, hint, say, say_json
from dittomq.cli.quantities import past_or_moment
from dittomq.cli.stored_message import message_document, message_line
from dittomq.cli.trail import Trail
from dittomq.errors import (
    CorruptRecord,
    DittoError,
    InvalidField,
    MessageTooLarge,
    NotReady,
    OffsetOutOfRange,
    QueueNotFound,
    Unavailable,
)

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import AsyncClient, Page, Reader
    from dittomq.client.access import ClusterAccess

_FOLLOW_WAIT_S = 20.0
_AGAIN_AFTER_S = 1.0
_PAGE_MESSAGES = 1_024
_PAGE_BYTES = 1024 * 1024
_BEYOND_ALL = 2**62
_MOST_DIGITS = 18  # no offset has more
_AWAY = (Unavailable, NotReady)
_ILLEGIBLE = (CorruptRecord, MessageTooLarge)


@dataclass(frozen=True, slots=True)
class ConsumeRequest:
    """What to read. `start`: earliest, latest, an offset, or a store time."""

    topic: str
    start: Literal["earliest", "latest"] | int | datetime
    queue: int | None
    node: str | None
    follow: bool

    @property
    def first(self) -> int:
        """The first offset to ask for."""
        return self.start if isinstance(self.start, int) else 0


class _ReadQueue(NamedTuple):
    """One queue of one broker group. `node` tells it from the other groups': the one asked for, or any of its group; None: no need."""

    broker: str
    number: int
    node: str | None


class _EnoughError(Exception):
    """As many messages as were asked for have been printed."""


@dataclass(eq=False)
class _EndsBeforeError(DittoError):
    """What `node` holds of a queue ends at `end`, before what is to be read next."""

    node: str
    queue: int
    end: int
    next: int

    def __str__(self) -> str:
        return f"queue {self.queue} of {self.node} ends at {self.end:,}, before {self.next:,}"


class Printer:
    """Prints until it has printed enough."""

    def __init__(self, limit: int | None, *, json: bool) -> None:
        self._left = limit
        self._json = json
        self._warned = False
        self._away: dict[_ReadQueue, type[DittoError]] = {}

    def away(self, queue: _ReadQueue, error: DittoError) -> None:
        """Say once what keeps a group's copies from going on with this queue, until one does; what other queues wait for too is said."""
        if not any(other.broker == queue.broker and kind is type(error) for other, kind in self._away.items()):
            hint(f"{queue.broker} is waited for: {error}")
        self._away[queue] = type(error)

    def undone(self, queue: _ReadQueue, offset: int, *, perhaps_before: bool) -> None:
        """Say that other messages follow than were printed."""
        since = f"from {offset} on, and perhaps before that," if perhaps_before else f"from {offset} on"
        where = f"queue {queue.number} of {queue.broker} holds other messages {since} than were printed"
        hint(f"{where}: those were undone when its master changed; it is read again from {offset} on")

    def show(self, queue: _ReadQueue, page: "Page") -> None:
        """Print a page; raises _EnoughError behind the last message that is wanted."""
        self._away.pop(queue, None)
        for message in page.messages:
            if self._left == 0:
                raise _EnoughError
            if self._json:
                say_json(message_document(queue.broker, message), stream=True)
            else:
                say(message_line(queue.broker, message))
            if self._left is not None:
                self._left -= 1
        flush()
        if page.unconfirmed_from is not None and not self._warned:
            self._warned = True
            hint(f"read from {page.node} without its master: what was not confirmed before may be undone by a new master")
        if self._left == 0:
            raise _EnoughError


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("consume", epilog=example("consume orders --from earliest --max 2", "consume orders --queue 3 --node a/1 --json"))(consume)


def consume(  # noqa: PLR0917  # flags
    topic: Annotated[str, typer.Argument(help="Topic.")],
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|OFFSET|TIME|1h", help="Where to begin in each queue.")
    ] = "earliest",
    limit: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many messages.")] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Only that queue.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="a/1", help="Read from that node and no other.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new messages, until interrupted.")] = False,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Print messages: broker group, queue@offset, store time, keys, body.

    Reads queue after queue to its present end; with --follow all queues at once. Slaves serve while a master is away. Exit code 3
    when no copy of some broker group answers, or none that does has the next message of some queue whole; --follow waits for it.
    """
    wanted = ConsumeRequest(topic, _start(start), queue, node, follow or start == "latest")
    return asyncio.run(_consume(cluster_access(nameserver), wanted, Printer(limit, json=json)))


async def _consume(access: "ClusterAccess", wanted: ConsumeRequest, printer: Printer) -> int:
    from dittomq.client import AsyncClient

    async with AsyncClient.of(access) as mq:
        return await print_messages(mq, wanted, printer)


async def print_messages(mq: "AsyncClient", wanted: ConsumeRequest, printer: Printer) -> int:
    """Print what is wanted; returns the exit code."""
    queues = await _queues(mq, wanted)
    try:
        if wanted.follow:
            await _read_at_once(mq, queues, wanted, printer)
        else:
            return await _read_in_turn(mq, queues, wanted, printer)
    except _EnoughError:
        pass
    return ExitCode.DONE


async def _read_at_once(mq: "AsyncClient", queues: Sequence[_ReadQueue], wanted: ConsumeRequest, printer: Printer) -> None:
    """Read for ever, or until one queue has printed enough or cannot be read; raises why."""
    first: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            for queue in queues:
                tasks.create_task(_follow(_reader(mq, queue, wanted), queue, wanted, printer))
    except* (_EnoughError, DittoError) as ended:
        first = ended.exceptions[0]
    if first is not None:
        raise first


async def _read_in_turn(mq: "AsyncClient", queues: Sequence[_ReadQueue], wanted: ConsumeRequest, printer: Printer) -> int:
    """Read every queue as far as it can be read, or until enough is printed; a group whose copies are all away is left out, and named."""
    away: dict[str, DittoError] = {}
    all_legible = True
    for queue in queues:
        if queue.broker in away:
            continue
        try:
            all_legible &= await _read(_reader(mq, queue, wanted), queue, wanted, printer)
        except _AWAY as silent:
            away[queue.broker] = silent
        except _EnoughError:
            break
    if away and len(away) == len({queue.broker for queue in queues}):
        raise next(iter(away.values()))
    for broker, problem in away.items():
        hint(f"{broker} is not read to its end: {problem}")
    return ExitCode.DONE if all_legible and not away else ExitCode.PARTLY


async def _queues(mq: "AsyncClient", wanted: ConsumeRequest) -> Sequence[_ReadQueue]:
    route = await mq.route(wanted.topic)
    nodes = {node.broker: node.name for node in sorted(route.nodes, key=lambda node: -node.broker_id)} if len(route.queues) > 1 else {}
    queues = sorted(_ReadQueue(each.broker, number, nodes.get(each.broker)) for each in route.queues for number in range(each.read_queues))
    if wanted.node is not None:
        groups = ", ".join(sorted({queue.broker for queue in queues}))
        queues = [queue._replace(node=wanted.node) for queue in queues if queue.broker == wanted.node.partition("/")[0]]
        if not queues:
            raise InvalidField("node", f'"{wanted.node}" is of no broker group that has topic "{wanted.topic}"; those are: {groups}')
    if wanted.queue is None:
        return queues
    chosen = [queue for queue in queues if queue.number == wanted.queue]
    if not chosen:
        raise QueueNotFound(wanted.topic, wanted.queue, 1 + max((queue.number for queue in queues), default=0))
    return chosen


def _reader(mq: "AsyncClient", queue: _ReadQueue, wanted: ConsumeRequest) -> "Reader":
    return mq.reader(wanted.topic, queue.number, broker=queue.broker, node=wanted.node, max_messages=_PAGE_MESSAGES, max_bytes=_PAGE_BYTES)


async def _read(reader: "Reader", queue: _ReadQueue, wanted: ConsumeRequest, printer: Printer) -> bool:
    """Print a queue to its present end; False when it was read less far, and why was said: no node that answers has the next one whole."""
    offset = wanted.first
    try:
        offset, end = await _bounds(reader, queue, wanted)
        while offset < end:
            page = await _pull(reader, queue, offset)
            printer.show(queue, page)
            offset = _behind(page, queue, offset, end)
    except _ILLEGIBLE as problem:
        _name_illegible(queue, offset, problem)
        return False
    except _EndsBeforeError as earlier:
        hint(f"{queue.broker} is not read to its end: {earlier}")
        return False
    return True


async def _follow(reader: "Reader", queue: _ReadQueue, wanted: ConsumeRequest, printer: Printer) -> None:
    """Print a queue for ever; wait for a copy that answers, for one that has got as far, and for one that has the next message whole.

    Wherever a new master may have others in their places, the newest that were printed are read once more and compared.
    """
    offset: int | None = None
    illegible: int | None = None
    trail = Trail()
    while True:
        try:
            if offset is None:
                offset, _ = await _bounds(reader, queue, wanted)
            page = await _pull(reader, queue, offset, wait_s=_FOLLOW_WAIT_S)
        except (*_AWAY, _EndsBeforeError) as silent:
            printer.away(queue, silent)
            trail.interrupted()
            if isinstance(silent, _EndsBeforeError) and trail.start is not None:
                offset = trail.start
            await asyncio.sleep(_AGAIN_AFTER_S)
        except (*_ILLEGIBLE, OffsetOutOfRange) as problem:
            if offset is not None and offset < trail.end:  # printed already, and there no more to be compared
                offset = trail.pass_over(offset, problem)
                continue
            if isinstance(problem, OffsetOutOfRange):
                raise
            at = wanted.first if offset is None else offset
            if illegible != at:
                _name_illegible(queue, at, problem)
            illegible = at
            await asyncio.sleep(_AGAIN_AFTER_S)
        else:
            again = trail.look_again(page, offset)
            if again is not None:
                offset = again
                continue
            fresh, other_from, perhaps_before = trail.take(page)
            if other_from is not None:
                printer.undone(queue, other_from, perhaps_before=perhaps_before)
            printer.show(queue, replace(page, messages=fresh))
            offset = page.next_offset


async def _pull(reader: "Reader", queue: _ReadQueue, offset: int, *, wait_s: float = 0.0) -> "Page":
    """A page from where reading has got to. A queue that ends before that is not back there yet: _EndsBeforeError."""
    try:
        return await reader.pull(offset, wait_s=wait_s)
    except OffsetOutOfRange as outside:
        if outside.asked < outside.start:
            raise
        raise _EndsBeforeError(queue.broker, queue.number, outside.end, offset) from outside


def _behind(page: "Page", queue: _ReadQueue, offset: int, end: int) -> int:
    """Where reading goes on behind a page. Raises _EndsBeforeError when there is no more of the queue, which had `end` before."""
    if page.next_offset == offset:
        raise _EndsBeforeError(page.node, queue.number, min(offset, page.max_offset), end)
    return page.next_offset


def _name_illegible(queue: _ReadQueue, offset: int, problem: DittoError) -> None:
    node = f" --node {queue.node}" if queue.node is not None else ""
    over = f"--queue {queue.number} --from {offset + 1}{node}"
    hint(f"{queue.broker} is not read from {queue.number}@{offset} on: {problem}; to pass it over: {over}")


async def _bounds(reader: "Reader", queue: _ReadQueue, wanted: ConsumeRequest) -> tuple[int, int]:
    """Where to begin, and the queue's present end where the reader reads.

    Raises OffsetOutOfRange for a start outside the queue, _EndsBeforeError for one that a slave has not reached, without its master to
    say whether there is one, and why the message there cannot be had.
    """
    if isinstance(wanted.start, int):
        page = await reader.pull(wanted.start)
        if wanted.start > page.max_offset:
            raise _EndsBeforeError(page.node, queue.number, page.max_offset, wanted.start)
        return wanted.start, page.max_offset
    if isinstance(wanted.start, datetime):
        first = await reader.offset_at(wanted.start)
        return first, (await reader.bounds(_BEYOND_ALL))[1]
    try:
        first, end = await reader.bounds()
    except _ILLEGIBLE:
        if wanted.start != "latest":
            raise
        first, end = await reader.bounds(_BEYOND_ALL)  # no message is read there
    return {"earliest": first, "latest": end}[wanted.start], end


def _start(text: str) -> Literal["earliest", "latest"] | int | datetime:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        with contextlib.suppress(typer.BadParameter):
            return past_or_moment(text)
        raise typer.BadParameter(f'"{text}" is no place in a queue; give earliest, latest, an offset, a time or 1h', param_hint="--from")
    return int(text)
