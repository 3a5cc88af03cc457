"""`dittomq publish`."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.output import hint, progress, say, say_json
from dittomq.cli.quantities import moment_ms, seconds
from dittomq.cli.records import LineSplitter, Recipe, parse_path
from dittomq.cli.tally import Tally
from dittomq.errors import ConfigError, DittoError, InvalidField, Refused
from dittomq.message import Ack, Message

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client.access import ClusterAccess

_PIECE_BYTES = 1024 * 1024

_EXAMPLES = ("publish orders orders.jsonl --order-key .customer --keys .id", "publish orders --ack MASTER_FLUSHED < orders.jsonl")


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be sent where."""

    access: "ClusterAccess"
    recipe: Recipe
    ack: Ack | None
    timeout_s: float


class _Interrupted(DittoError):
    """Somebody pressed Ctrl-C."""

    def __str__(self) -> str:
        return "interrupted; what counts as unknown may be stored or not: read the topic before you send it again"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("publish", epilog=example(*_EXAMPLES))(publish)


def publish(  # noqa: PLR0917  # flags
    topic: Annotated[str, typer.Argument(help="Topic; it must exist.")],
    file: Annotated[Path | None, typer.Argument(help="One record a line, bytes of any kind; - or nothing: standard input.")] = None,
    order_key: Annotated[str, typer.Option("--order-key", metavar="PATH", help="Where in a JSON record its order key is: .customer")] = "",
    keys: Annotated[str, typer.Option("--keys", metavar="PATH", help="Where in a JSON record the key to find it by is: .id")] = "",
    ack: Annotated[
        Ack | None, typer.Option("--ack", help="When a message counts as stored; otherwise as the broker group is set up.")
    ] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long a broker may wait for that level.")] = "3s",
    delay: Annotated[
        str, typer.Option("--delay", metavar="DURATION", help="Nobody can read the messages before it is over; at most 960h.")
    ] = "",
    deliver_at: Annotated[
        str, typer.Option("--deliver-at", metavar="TIME", help="Nor before that time: 2026-12-24T18:00:00Z; at most 40 days ahead.")
    ] = "",
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Publish the lines of a file, and say what became of them.

    Exit code 3 when some are stored weaker than asked or not at all, 4 when the outcome of some is unknown.
    """
    delay_ms, deliver_ms = (
        round(1_000 * seconds(delay, "--delay")) if delay else 0,
        moment_ms(deliver_at, "--deliver-at") if deliver_at else 0,
    )
    recipe = Recipe(topic, parse_path(order_key) if order_key else None, parse_path(keys) if keys else None, delay_ms, deliver_ms)
    order = _Order(cluster_access(nameserver), recipe, ack, seconds(timeout, "--timeout"))
    tally = Tally(ack)
    with ExitStack() as stack:
        lines = _open(file, stack)
        total = _check(recipe, lines)
        advance = stack.enter_context(progress(f"publish {topic}", total))
        began = time.monotonic()
        stopped = _send_all(order, lines, tally, advance)
        took = time.monotonic() - began
    for problem in filter(None, (tally.first_error, stopped)):
        hint(str(problem))
    if json:
        say_json(tally.document() | {"seconds": round(took, 3)})
    else:
        say(tally.summary(took))
    if isinstance(stopped, _Interrupted) and not tally.unknown:
        raise KeyboardInterrupt  # all is known: it ends as every command does then
    if stopped is not None and tally.exit() is ExitCode.DONE:
        return ExitCode.PARTLY if tally.stored else ExitCode.REFUSED
    return tally.exit()


def _send_all(order: _Order, lines: BinaryIO, tally: Tally, advance: Callable[[int], None]) -> DittoError | None:
    """Send and count; return what stopped it, None at the end. What stops it before anything was handed over is raised."""
    try:
        return asyncio.run(_send(order, lines, tally, advance))
    except (KeyboardInterrupt, DittoError) as broken:
        if not tally.handed:
            raise
        tally.break_off()
        return broken if isinstance(broken, DittoError) else _Interrupted()


async def _send(order: _Order, lines: BinaryIO, tally: Tally, advance: Callable[[int], None]) -> Refused | None:
    """Send and count until the lines end or one of them cannot be a message; return why, None at the end."""
    from dittomq.client import AsyncClient

    stopped: list[Refused] = []

    def checked(messages: Iterator[Message]) -> Iterator[Message]:
        try:
            for message in messages:
                tally.handed += 1
                yield message
                advance(1)
        except Refused as refused:
            stopped.append(refused)

    async with AsyncClient.of(order.access) as mq, mq.producer(order.ack, timeout_s=order.timeout_s, on_weak="return") as producer:
        await mq.route(order.recipe.topic)  # a topic that is not there is one error, not one for each line
        async for batch in _batches(LineSplitter(order.recipe), lines):
            tally.add_all(await producer.publish_many(checked(batch), on_failure="return"))
            if stopped:
                return stopped[0]
    return None


async def _batches(records: LineSplitter, lines: BinaryIO) -> AsyncIterator[Iterator[Message]]:
    """A file as one batch that is read as it is sent; a pipe or a terminal in batches as its lines come, so that none waits for company."""
    if lines.seekable():
        yield _whole_file(records, lines)
        return
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), lines)
    while piece := await reader.read(_PIECE_BYTES):
        yield records.feed(piece)
    yield records.finish()


def _whole_file(records: LineSplitter, lines: BinaryIO) -> Iterator[Message]:
    while piece := _read(lines):
        yield from records.feed(piece)
    yield from records.finish()


def _read(lines: BinaryIO) -> bytes:
    try:
        return lines.read(_PIECE_BYTES)
    except OSError as error:
        raise InvalidField(str(lines.name), f"cannot be read: {error.strerror}") from error


def _open(file: Path | None, stack: ExitStack) -> BinaryIO:
    if file is None or str(file) == "-":
        if sys.stdin is None:
            raise ConfigError("standard input", "is closed; name a file, or pipe something in")
        return sys.stdin.buffer
    try:
        return stack.enter_context(file.open("rb"))
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read: {error.strerror}") from error


def _check(recipe: Recipe, lines: BinaryIO) -> int | None:
    """Look through a file before anything of it is sent, so that a bad line leaves nothing half sent; return how many lines it has."""
    if not lines.seekable():
        return None
    begin = lines.tell()
    total = sum(1 for _ in _whole_file(LineSplitter(recipe), lines))
    lines.seek(begin)
    return total
