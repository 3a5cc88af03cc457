"""`dittomq repair`: lets nodes verify their logs and fetch what is damaged from other copies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dittomq.cli.audited import wrong_spans
from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode, exit_of
from dittomq.cli.output import hint, printable, say, say_json
from dittomq.cli.quantities import bounds
from dittomq.copies import RangeOutcome
from dittomq.errors import DittoError, InvalidField, OffsetOutOfRange
from dittomq.routes import Node

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import Client

_Span = tuple[int | None, int | None]

_NAMED = 20
_PROGRESS_BYTES = 1024 * 1024 * 1024


class NodeRepair:
    """What became of one node: how much was verified, what of it was damaged, and the error that ended it, None when nothing did."""

    def __init__(self, node: str, spans: Sequence[_Span]) -> None:
        """`spans`: what of its log is to be verified."""
        self.node = node
        self.spans = spans
        self.verified_bytes = 0
        self.ranges: list[RangeOutcome] = []
        self.error: DittoError | None = None

    @property
    def left(self) -> list[RangeOutcome]:
        """Ranges that could not be repaired."""
        return [each for each in self.ranges if not each.source]

    @property
    def is_more_than_asked(self) -> bool:
        """Whether bytes outside of all spans were verified or damaged: a record has no half, and neither has a damaged range."""
        if any(start is None or end is None for start, end in self.spans):
            return False
        asked = [(start, end) for start, end in self.spans if start is not None and end is not None]
        outside = [each for each in self.ranges if not any(start <= each.start and each.end <= end for start, end in asked)]
        return bool(outside) or self.verified_bytes > sum(end - start for start, end in asked)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("repair", epilog=example("repair a/1", "repair a/1 --bytes 0..1000000", "repair a/1 --run last", "repair --broker a"))(
        repair
    )


def repair(  # noqa: PLR0917  # one argument for each word of the command
    node: Annotated[str | None, typer.Argument(help="The node whose log is to be made whole, for instance a/1.")] = None,
    broker: Annotated[str | None, typer.Option("--broker", help="Instead of one node: every node of this broker group.")] = None,
    bytes_: Annotated[
        str | None,
        typer.Option("--bytes", metavar="A..B", help="Only the records that have a byte in [A, B), and damaged ranges that touch them."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", help="Only what this audit found wrong: its time, the beginning of it, or last; from .dittomq/audit."),
    ] = None,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Verify a node's log where it lies and fetch what is damaged from any copy that has it whole, while all of them run.

    Of what stays damaged it names the messages, queue@offset. Exit code 3 when something does or a node did not answer, 5 when none did.
    """
    from dittomq.client import Client

    if (node is None) == (broker is None):
        raise typer.BadParameter("name one node, or a group with --broker", param_hint="NODE")
    if bytes_ is not None and run is not None:
        raise typer.BadParameter("say --bytes or --run, not both", param_hint="--run")
    asked = _range(bytes_)
    with Client.of(cluster_access(nameserver)) as mq:
        nodes = nodes_to_repair(mq.admin.list_brokers(), node, broker)
        spans = {each.name: [asked] if run is None else wrong_spans(each.cluster, each.name, run) for each in nodes}
        repairs = [_repair(mq, NodeRepair(name, wanted), may_be_gone=run is not None) for name, wanted in spans.items()]
    if len(repairs) == 1 and repairs[0].error is not None and not repairs[0].verified_bytes:
        raise repairs[0].error
    _show(repairs, json=json)
    return _exit(repairs)


def nodes_to_repair(registered: Sequence[Node], node: str | None, broker: str | None) -> list[Node]:
    """The node, or all of the group. Raises InvalidField where none is registered."""
    nodes = [each for each in registered if node == each.name or broker == each.broker]
    if nodes:
        return nodes
    field, name = ("broker", broker) if node is None else ("node", node)
    raise InvalidField(field, f'"{name}" is not registered with any nameserver; list them: dittomq cluster')


def _repair(mq: "Client", done: NodeRepair, *, may_be_gone: bool) -> NodeRepair:
    """Verify its spans, one after the other; one that is not in the log ends that unless it `may_be_gone`."""
    for start, end in done.spans:
        try:
            _repair_span(mq, done, start, end)
        except DittoError as error:
            if not (may_be_gone and isinstance(error, OffsetOutOfRange)):
                done.error = error
                break
            hint(f"{done.node}: bytes {start:,} to {end:,} have left its log")
    return done


def _repair_span(mq: "Client", done: NodeRepair, start: int | None, end: int | None) -> None:
    told = done.verified_bytes
    while True:
        report = mq.admin.repair(done.node, start, end)
        done.verified_bytes += report.end - report.start
        done.ranges += report.ranges
        if report.is_done:
            return
        start = report.end
        if done.verified_bytes - told >= _PROGRESS_BYTES:
            told = done.verified_bytes
            hint(f"{done.node}: {told:,} bytes verified, {_ranges(done)} damaged")


def _ranges(done: NodeRepair) -> str:
    return "1 range" if len(done.ranges) == 1 else f"{len(done.ranges)} ranges"


def report_lines(done: NodeRepair) -> list[str]:
    """What is printed of a node: its damaged ranges, its error, and how much of it is known to be whole now."""
    lines = []
    for found in done.ranges:
        became = f"repaired from {found.source}" if found.source else f"NOT REPAIRED: {found.problem}"
        lines.append(f"bytes {found.start:,} to {found.end:,}  {became}")
        lines += _messages_of(found)
    if done.error is not None:
        lines.append(f"FAILED  {done.error}")
    verified = f"{done.verified_bytes:,} bytes verified"
    if not done.spans:
        lines.append("nothing was verified: that audit found nothing wrong on it")
    elif done.ranges:
        were, are = "was" if len(done.ranges) == 1 else "were", "is" if len(done.left) == 1 else "are"
        lines.append(f"{verified}, {_ranges(done)} {were} damaged, {len(done.left)} still {are}")
    else:
        lines.append(f"{verified}, nothing is damaged" if done.verified_bytes else verified)
    if done.is_more_than_asked:
        lines.append("more than was asked for: records are verified whole, and a damaged range is repaired whole when it touches one")
    return [printable(f"{done.node}  {line}") for line in lines]


def _messages_of(found: RangeOutcome) -> list[str]:
    """What is in a range that is not repaired."""
    named = [
        f"  in it: {run.topic} {run.queue}@{run.first}" + (f" to {run.end - 1}" if run.end > run.first + 1 else "")
        for run in found.messages
    ]
    left_out = named[_NAMED:]
    if left_out:
        named[_NAMED:] = [f"  in it: messages of {len(left_out):,} more stretches of queues; --json names them"]
    if found.more_messages:
        named.append("  in it, perhaps: messages whose queue offsets are not known here, or too many to be named")
    return named


def _show(repairs: Sequence[NodeRepair], *, json: bool) -> None:
    if json:
        say_json({"nodes": [_document(each) for each in repairs]})
        return
    for line in (line for each in repairs for line in report_lines(each)):
        say(line)


def _document(done: NodeRepair) -> dict[str, object]:
    return {
        "node": done.node,
        "verified_bytes": done.verified_bytes,
        "error": None if done.error is None else str(done.error),
        "ranges": [
            {
                "start": each.start,
                "end": each.end,
                "source": each.source or None,
                "problem": each.problem or None,
                "messages": [{"topic": run.topic, "queue": run.queue, "first": run.first, "end": run.end} for run in each.messages],
                "more_messages": each.more_messages,
            }
            for each in done.ranges
        ],
    }


def _exit(repairs: Sequence[NodeRepair]) -> ExitCode:
    errors = [each.error for each in repairs if each.error is not None]
    if len(errors) == len(repairs) and not any(each.verified_bytes for each in repairs):
        return exit_of(errors[0])
    return ExitCode.PARTLY if errors or any(each.left for each in repairs) else ExitCode.DONE


def _range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    found = bounds(text)
    if found is None or found[0] >= found[1]:
        raise typer.BadParameter(f'"{text}" is no range of bytes; write 31457292812..31457293900', param_hint="--bytes")
    return found
