"""`dittomq group …`: consumer groups; one call on every broker group, which can be run again until it is done in all."""

from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from dittomq.cli import dead_letters
from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.output import printable, say, say_json, table
from dittomq.cli.quantities import past_or_moment
from dittomq.cli.results import failures, report, report_deleted, shown_exit
from dittomq.consumer_progress import QueueProgress, ResetOrder, ResetTarget
from dittomq.errors import GroupNotFound
from dittomq.metadata.groups import GROUP_SETTINGS, MAX_GROUP_CHARACTERS, GroupUpdate
from dittomq.metadata.rows import GroupConfig

_MOST_DIGITS: Final = 19

app = typer.Typer(name="group", help="Consumer groups.", no_args_is_help=True)
dead_letters.add_to(app)

GroupName = Annotated[str, typer.Argument(help=f"Name: 1 to {MAX_GROUP_CHARACTERS} characters of letters, digits and % | _ -")]
Broker = Annotated[str | None, typer.Option("--broker", help="Only in that broker group.")]
Retries = Annotated[
    int | None, typer.Option("--retries", help="Tries before a message goes to the dead-letter topic, 0 to 1,000; RocketMQ: 16.")
]
RetryQueues = Annotated[int | None, typer.Option("--retry-queues", help="Queues of its retry topic, 1 to 1,024; RocketMQ: 1.")]
SlowReads = Annotated[
    int | None,
    typer.Option("--slow-reads-from", metavar="ID", help="Broker id suggested to members far behind; 0 is the master, RocketMQ: 1."),
]
Enabled = Annotated[bool | None, typer.Option("--enable/--disable", help="Whether it may consume.")]
Orderly = Annotated[
    bool | None, typer.Option("--orderly/--no-orderly", help="RocketMQ's setting, stored for its clients; ours always read in order.")
]
Broadcast = Annotated[bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether each member may read everything.")]


@app.command(epilog=example("group create billing", "group create billing --retries 3"))
def create(  # noqa: PLR0917  # flags
    name: GroupName,
    retries: Retries = None,
    retry_queues: RetryQueues = None,
    slow_reads_from: SlowReads = None,
    orderly: Orderly = None,
    broadcast: Broadcast = None,
    broker: Broker = None,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Create a consumer group in every broker group. One that exists with the same settings is fine."""
    from dittomq.client import Client

    settings = _given(None, retries, retry_queues, slow_reads_from, orderly, broadcast)
    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.create_group(GroupConfig(name, **settings), broker=broker)
    words = {
        result.broker: f"{'created' if result.value.created else 'exists '}   {_words(result.value.group)}"
        for result in results
        if result.value is not None
    }
    return report("group", name, results, words, json=json)


@app.command(epilog=example("group update billing --slow-reads-from 1", "group update billing --disable"))
def update(  # noqa: PLR0917  # flags
    name: GroupName,
    enable: Enabled = None,
    retries: Retries = None,
    retry_queues: RetryQueues = None,
    slow_reads_from: SlowReads = None,
    orderly: Orderly = None,
    broadcast: Broadcast = None,
    broker: Broker = None,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Change a consumer group in every broker group; what no flag names stays as it is."""
    from dittomq.client import Client

    settings = _given(enable, retries, retry_queues, slow_reads_from, orderly, broadcast)
    if not settings:
        raise typer.BadParameter("says nothing that is to change; give a setting, as --retries 3", param_hint="group update")
    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.update_group(GroupUpdate(GroupConfig(name, **settings), tuple(settings)), broker=broker)
    words = {
        result.broker: f"{'updated' if result.value.changed else 'has it '}   {_words(result.value.group)}"
        for result in results
        if result.value is not None
    }
    return report("group", name, results, words, json=json)


@app.command(epilog=example("group delete billing"))
def delete(name: GroupName, broker: Broker = None, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """Delete a consumer group and its offsets in every broker group. Made again, it begins without any."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.delete_group(name, broker=broker)
    return report_deleted("group", name, results, GroupNotFound, json=json)


@app.command("list", epilog=example("group list", "group list --json"))
def list_all(broker: Broker = None, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """List the consumer groups of every broker group."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.list_groups(broker=broker)
    found = [(result.broker, group) for result in results for group in result.value or ()]
    if json:
        say_json({"groups": [{"broker": where, **_fields(group)} for where, group in found], "failed": failures(results)})
    else:
        rows = [
            (
                *(where, printable(group.name), "yes" if group.consume_enable else "no", "yes" if group.consume_message_orderly else "no"),
                *(f"{group.retry_max_times}", f"{group.which_broker_when_consume_slowly}"),
            )
            for where, group in found
        ]
        for line in table([("BROKER", "GROUP", "ENABLED", "IN ORDER", "RETRIES", "SLOW READS FROM"), *rows]):
            say(line)
    return shown_exit(results)


@app.command(epilog=example("group describe billing", "group describe billing --topic orders"))
def describe(
    name: GroupName,
    topic: Annotated[str, typer.Option("--topic", help="Only in that topic.")] = "",
    broker: Broker = None,
    json: JsonFlag = False,
    *,
    nameserver: Nameserver = None,
) -> int:
    """Show a consumer group's settings, and how far it is behind in each queue."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.describe_group(name, broker=broker)
        progress = mq.admin.group_progress(name, topic, broker=broker)
    found = [(result.broker, result.value) for result in results if result.value is not None]
    queues = [(result.broker, each) for result in progress if result.value is not None for each in result.value.queues]
    members = sorted({member for result in progress if result.value is not None for member in result.value.members})
    if json:
        document = {
            "group": name,
            "groups": [{"broker": where, **_fields(group)} for where, group in found],
            "members": members,
            "queues": [{"broker": where, **asdict(each)} for where, each in queues],
            "failed": [*failures(results), *failures(progress)],
        }
        say_json(document)
    else:
        for where, group in found:
            say(f"{where}  {_words(group)}")
        say(f"{len(members)} active member{'' if len(members) == 1 else 's'}, {sum(each.lag for _, each in queues):,} messages behind")
        for line in table([("TOPIC", "QUEUE", "COMMITTED", "END", "LAG", "OLDEST UNREAD", "MEMBER"), *map(_progress_row, queues)]):
            say(line)
    return shown_exit(results) or shown_exit(progress)


@app.command(epilog=example("group reset billing orders --to earliest", "group reset billing orders --to 1h --queue 3"))
def reset(  # noqa: PLR0917  # flags
    name: GroupName,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    to: Annotated[str, typer.Option("--to", metavar="earliest|latest|OFFSET|TIME|AGE", help="Where to go on; 1h is an hour ago.")],
    queues: Annotated[list[int] | None, typer.Option("--queue", help="Only this queue; may be given several times.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be moved.")] = False,
    broker: Broker = None,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Move the offsets of a consumer group in a topic. Refused while it has active members."""
    from dittomq.client import Client

    target, value = _target(to)
    order = ResetOrder(name, topic, target, value, tuple(queues or ()), dry_run)
    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.reset_offsets(order, broker=broker)
    moved = [(result.broker, each) for result in results for each in result.value or ()]
    if json:
        rows = [{"broker": where, **asdict(each)} for where, each in moved]
        say_json({"group": name, "topic": topic, "queues": rows, "failed": failures(results)})
    else:
        rows_of_text = [
            (where, f"{each.queue}", "-" if each.before is None else f"{each.before:,}", f"{each.offset:,}") for where, each in moved
        ]
        for line in table([("BROKER", "QUEUE", "BEFORE", "WOULD BE" if dry_run else "NOW"), *rows_of_text]):
            say(line)
    return shown_exit(results)


def _target(text: str) -> tuple[ResetTarget, int]:
    if text in {"earliest", "latest"}:
        return ResetTarget[text.upper()], 0
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return ResetTarget.OFFSET, int(text)
    try:
        moment = past_or_moment(text)
    except typer.BadParameter:
        problem = f'"{text}" is no place in a queue; give earliest, latest, an offset, a time or 1h'
        raise typer.BadParameter(problem, param_hint="--to") from None
    return ResetTarget.TIME, int(moment.timestamp() * 1_000)


def _progress_row(found: tuple[str, QueueProgress]) -> tuple[str, ...]:
    where, each = found
    age = "-" if each.oldest_unread_ms is None else f"{each.oldest_unread_ms / 1_000:,.1f} s"
    committed = "-" if each.committed is None else f"{each.committed:,}"
    return printable(each.topic), f"{where} {each.queue}", committed, f"{each.end:,}", f"{each.lag:,}", age, printable(each.member) or "-"


def _given(  # noqa: PLR0917  # flags
    enable: bool | None,
    retries: int | None,
    retry_queues: int | None,
    slow_reads_from: int | None,
    orderly: bool | None,
    broadcast: bool | None,
) -> dict[str, Any]:
    """The settings that flags name, by field."""
    flags = {
        "consume_enable": enable,
        "retry_max_times": retries,
        "retry_queues": retry_queues,
        "which_broker_when_consume_slowly": slow_reads_from,
        "consume_message_orderly": orderly,
        "consume_broadcast_enable": broadcast,
    }
    return {field: value for field, value in flags.items() if value is not None}


def _fields(group: GroupConfig) -> dict[str, Any]:
    return {"group": group.name} | {field: getattr(group, field) for field in GROUP_SETTINGS}


def _words(group: GroupConfig) -> str:
    parts = [
        "" if group.consume_enable else "disabled",
        "in order" if group.consume_message_orderly else "",
        "" if group.consume_broadcast_enable else "no broadcast",
        f"{group.retry_max_times} retries, {group.retry_queues} retry queue{'' if group.retry_queues == 1 else 's'}",
        f"slow reads from {group.which_broker_when_consume_slowly}",
    ]
    return ", ".join(filter(None, parts))
