"""`dittomq group dead-letters`: what a group has given up, printed, or given to it once more."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.interrupted import report_interrupt
from dittomq.cli.output import flush, hint, printable, say, say_json
from dittomq.cli.quantities import past_or_moment
from dittomq.cli.results import failures, shown_exit
from dittomq.cli.stored_message import message_document, message_line
from dittomq.consumer.dead_letters import (
    MAX_DEAD_LETTERS,
    DeadLetterMessage,
    DeadLetterPage,
    DeadLetterQuery,
    LetterPlace,
    ReplayedLetter,
    ReplayOrder,
    ReplayResult,
)
from dittomq.consumer.retries import retry_topic
from dittomq.errors import ConnectionRefused, Unavailable

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import Client, GroupResult

P = TypeVar("P", DeadLetterPage, ReplayResult)

_SHOWN: Final = 100
_PLACE: Final = re.compile(r"([0-9]{1,9})@([0-9]{1,18})")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    examples = (
        "group dead-letters billing",
        "group dead-letters billing --since 1h --json",
        "group dead-letters billing --replay --dry-run",
    )
    app.command("dead-letters", epilog=example(*examples))(dead_letters)


def dead_letters(  # noqa: PLR0917  # flags
    name: Annotated[str, typer.Argument(help="Consumer group.")],
    limit: Annotated[
        int | None,
        typer.Option(
            "--max", min=1, help=f"At most so many of each broker group, the oldest of a queue first; {_SHOWN} or, replayed, all."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME|AGE", help="Only what was given up since then; 1h is an hour ago.")
    ] = None,
    replay: Annotated[bool, typer.Option("--replay", help="Let members of the group read them once more.")] = False,
    letter: Annotated[str | None, typer.Option("--letter", metavar="QUEUE@OFFSET", help="Replay only this one; with --broker.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what --replay would replay.")] = False,
    broker: Annotated[str | None, typer.Option("--broker", help="Only in that broker group.")] = None,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Print the messages that a consumer group has given up, one line each; with --json one object a line.

    With --replay the group gets copies, each tried as often as a new message. The dead letters stay where they are: replayed twice, a
    message comes twice. Exit code 4: nobody knows whether the last ones were replayed.
    """
    from dittomq.client import Client

    only = None if letter is None else _place(letter, broker)
    if not replay and (only is not None or dry_run):
        raise typer.BadParameter("only says what --replay does; give --replay too", param_hint="--dry-run" if dry_run else "--letter")
    if only is not None and (since is not None or limit is not None):
        raise typer.BadParameter("names one dead letter; leave --since and --max out", param_hint="--letter")
    from_ms = 0 if since is None else int(past_or_moment(since, "--since").timestamp() * 1_000)
    query = DeadLetterQuery(name, max(0, from_ms), MAX_DEAD_LETTERS)
    with Client.of(cluster_access(nameserver)) as mq:
        if not replay:
            return _list(mq, query, limit or _SHOWN, broker, json=json)
        with report_interrupt("interrupted; what is printed is replayed, and what was under way may be"):
            return _replay(mq, ReplayOrder(query, only, dry_run), limit, broker, json=json)


def _place(text: str, broker: str | None) -> LetterPlace:
    found = _PLACE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(
            f'"{text}" is no place of a dead letter; give QUEUE@OFFSET as the list shows it, as 0@3', param_hint="--letter"
        )
    if broker is None:
        raise typer.BadParameter("is a place in one broker group; name it with --broker", param_hint="--letter")
    return LetterPlace(int(found[1]), int(found[2]))


def _list(mq: "Client", query: DeadLetterQuery, limit: int, broker: str | None, *, json: bool) -> int:
    count = 0
    ended: dict[str, GroupResult[DeadLetterPage]] = {}

    def ask(page: DeadLetterQuery, where: str | None) -> "list[GroupResult[DeadLetterPage]]":
        return mq.admin.list_dead_letters(page, broker=where)

    for answer in _pages(ask, query, limit, broker, size=lambda page: len(page.letters)):
        ended[answer.broker] = answer
        letters = () if answer.value is None else answer.value.letters
        for letter in letters:
            _show(answer.broker, letter, json=json)
        flush()
        count += len(letters)
    last = list(ended.values())
    if not count and all(result.error is None for result in last):
        hint(f"consumer group {printable(query.group)} has no dead letters")
    return shown_exit(last)


def _show(broker: str, letter: DeadLetterMessage, *, json: bool) -> None:
    if json:
        more = {"origin_topic": letter.origin_topic, "tries": letter.tries}
        say_json(message_document(broker, letter.message) | more, stream=True)
    else:
        say(f"{message_line(broker, letter.message)}  from {printable(letter.origin_topic) or '-'}")


def _replay(mq: "Client", order: ReplayOrder, limit: int | None, broker: str | None, *, json: bool) -> int:
    done: list[tuple[str, ReplayedLetter]] = []
    ended: dict[str, GroupResult[ReplayResult]] = {}
    topic = printable(retry_topic(order.query.group))
    verb = "would be again" if order.validate_only else "again"

    def ask(page: DeadLetterQuery, where: str | None) -> "list[GroupResult[ReplayResult]]":
        return mq.admin.replay_dead_letters(replace(order, query=page), broker=where)

    for answer in _pages(ask, order.query, limit, broker, size=lambda result: len(result.replayed)):
        ended[answer.broker] = answer
        replayed = () if answer.value is None else answer.value.replayed
        done += [(answer.broker, each) for each in replayed]
        for each in replayed if not json else ():
            say(f"{answer.broker} {each.place.queue}@{each.place.offset}  {verb} in queue {each.retry_queue} of {topic}")
        flush()
    last = list(ended.values())
    if json:
        rows = [
            {"broker": where, "queue": each.place.queue, "offset": each.place.offset, "retry_queue": each.retry_queue}
            for where, each in done
        ]
        say_json({"group": order.query.group, "replayed": rows, "dry_run": order.validate_only, "failed": failures(last)})
    elif not done and all(result.error is None for result in last):
        hint(f"consumer group {printable(order.query.group)} has no dead letters")
    return _replay_exit(last, some_did=bool(done), dry_run=order.validate_only)


def _pages(
    ask: "Callable[[DeadLetterQuery, str | None], list[GroupResult[P]]]",
    query: DeadLetterQuery,
    limit: int | None,
    broker: str | None,
    *,
    size: Callable[[P], int],
) -> "Iterator[GroupResult[P]]":
    """The first answer of each broker group, and those of the calls that go on where it ended, the last of which may fail."""
    most = MAX_DEAD_LETTERS if limit is None else min(limit, MAX_DEAD_LETTERS)
    for first in ask(replace(query, page_size=most), broker):
        yield first
        count, value = 0, first.value
        while value is not None:
            count += size(value)
            most = MAX_DEAD_LETTERS if limit is None else min(limit - count, MAX_DEAD_LETTERS)
            if not value.next_token or not most:
                break
            [answer] = ask(replace(query, page_size=most, page_token=value.next_token), first.broker)
            yield answer
            value = answer.value


def _replay_exit(ended: "list[GroupResult[ReplayResult]]", *, some_did: bool, dry_run: bool) -> int:
    errors = [result for result in ended if result.error is not None]
    unknown = [result for result in errors if isinstance(result.error, Unavailable) and not isinstance(result.error, ConnectionRefused)]
    code = shown_exit(ended)
    if unknown and not dry_run:
        for result in unknown:
            hint(f"{result.broker}: nobody knows whether the next dead letters were replayed; run again, members may get some twice")
        return ExitCode.UNKNOWN
    return ExitCode.PARTLY if errors and some_did else code
