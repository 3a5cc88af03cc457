"""`dittomq message …`: single messages, by id and by key; what became of one; cancelling one that waits."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.output import hint, say, say_json
from dittomq.cli.quantities import past_or_moment
from dittomq.cli.stored_message import message_document, message_line

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import FoundMessage, MessageLookups

T = TypeVar("T")

app = typer.Typer(name="message", help="Single messages.", no_args_is_help=True)


@app.command(epilog=example("message get 7.41943040-128.a", "message get AC11000100002A9F0000000002800080 --json"))
def get(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Token of a receipt, or RocketMQ's message id.")],
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Print one message, by its id."""
    _show([_asked(nameserver, lambda messages: messages.get(message_id))], json=json)
    return ExitCode.DONE


@app.command(epilog=example("message find orders o-17 --since 1h", "message find orders o-17 --max 5 --json"))
def find(  # noqa: PLR0917  # flags
    topic: Annotated[str, typer.Argument(help="Topic.")],
    key: Annotated[str, typer.Argument(help="One of the messages' keys.")],
    since: Annotated[str, typer.Option("--since", metavar="TIME|1h", help="Only messages that were stored then or later.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME|1h", help="Only messages that were stored before that.")] = "",
    limit: Annotated[int, typer.Option("--max", min=1, help="At most so many, the newest.")] = 16,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Print messages of a topic with a key, the newest first. Exit code 1 when there is none."""
    low, high = (past_or_moment(text, option) if text else None for text, option in ((since, "--since"), (until, "--until")))
    found = _asked(nameserver, lambda messages: messages.find(topic, key, since=low, until=high, limit=limit))
    _show(found, json=json)
    if not found:
        hint(f'no message of topic "{topic}" that can be read has the key "{key}"')
    return ExitCode.DONE if found else ExitCode.REFUSED


@app.command(epilog=example("message cancel 7.41943040-128.a"))
def cancel(
    token: Annotated[str, typer.Argument(help="Token of the receipt.")],
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Cancel a delayed message that is not delivered yet. Exit code 1 when it is too late, 4 when the outcome is unknown."""
    outcome = _asked(nameserver, lambda messages: messages.cancel(token)).name.lower()
    if json:
        say_json({"outcome": outcome})
    else:
        say(outcome.replace("_", " "))
    return {"cancelled": ExitCode.DONE, "already_delivered": ExitCode.REFUSED}.get(outcome, ExitCode.UNKNOWN)


@app.command(epilog=example("message outcome a 6f1c2a 41"))
def outcome(  # noqa: PLR0917  # flags
    broker: Annotated[str, typer.Argument(help="Broker group that it was sent to.")],
    producer_id: Annotated[str, typer.Argument(help="The producer's id.")],
    sequence: Annotated[int, typer.Argument(min=0, help="The message's sequence.")],
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Say what became of a message whose answer was lost. Exit code 1 when it is not stored, 4 when that is not known."""
    known = _asked(nameserver, lambda messages: messages.outcome(broker, producer_id, sequence))
    word = "stored" if known.receipt is not None else "not stored" if known.absent else "unknown"
    if json:
        say_json({"outcome": word.replace(" ", "_"), "token": known.receipt.token if known.receipt is not None else ""})
    else:
        say(word if known.receipt is None else f"{word}  {known.receipt.token}")
    return {"stored": ExitCode.DONE, "not stored": ExitCode.REFUSED}.get(word, ExitCode.UNKNOWN)


def _asked(nameserver: str | None, ask: "Callable[[MessageLookups], Coroutine[Any, Any, T]]") -> T:
    from dittomq.client import AsyncClient

    async def asked() -> T:
        async with AsyncClient.of(cluster_access(nameserver)) as mq:
            return await ask(mq.messages)

    return asyncio.run(asked())


def _show(found: "list[FoundMessage]", *, json: bool) -> None:
    for each in found:
        if json:
            say_json(message_document(each.broker, each.message), stream=True)
        else:
            say(message_line(each.broker, each.message))
