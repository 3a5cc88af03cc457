"""`dittomq topic …`: one call on every broker group; what was done in part can be run again until it is done in all."""

from typing import Annotated

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.output import printable, say, say_json, table
from dittomq.cli.results import failures, report, report_deleted, shown_exit
from dittomq.cli.route import permission_words
from dittomq.errors import TopicNotFound
from dittomq.message import MAX_TOPIC_CHARACTERS
from dittomq.metadata.topics import TopicConfig

app = typer.Typer(name="topic", help="Topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help=f"Name: 1 to {MAX_TOPIC_CHARACTERS} characters of letters, digits and % | _ -")]
Broker = Annotated[str | None, typer.Option("--broker", help="Only in that broker group.")]


@app.command(epilog=example("topic create orders --queues 8"))
def create(
    name: Topic,
    queues: Annotated[int, typer.Option("--queues", help="Queues in each broker group, 1 to 1,024.")] = 8,
    broker: Broker = None,
    json: JsonFlag = False,
    *,
    nameserver: Nameserver = None,
) -> int:
    """Create a topic in every broker group. One that exists with the same settings is fine."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.create_topic(name, queues, broker=broker)
    words = {
        result.broker: f"{'created' if result.value.created else 'exists '}   "
        f"{result.value.topic.write_queues} queues, {permission_words(result.value.topic.permission)}"
        for result in results
        if result.value is not None
    }
    return report("topic", name, results, words, json=json)


@app.command(epilog=example("topic update orders --queues 12", "topic update orders --write-queues 8"))
def update(  # noqa: PLR0917  # flags
    name: Topic,
    queues: Annotated[int | None, typer.Option("--queues", help="Queues to read and to write in each broker group: more than now.")] = None,
    write_queues: Annotated[int | None, typer.Option("--write-queues", help="Queues that are written, may be fewer than are read.")] = None,
    permission: Annotated[int | None, typer.Option("--permission", metavar="4|2|6", help="4: only read, 2: only written, 6: both.")] = None,
    broker: Broker = None,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Change a topic in every broker group. Queues that may hold messages stay readable; an order key moves when their number changes."""
    from dittomq.client import Client

    if queues is None and write_queues is None and permission is None:
        raise typer.BadParameter("says nothing that is to change; give --queues, --write-queues or --permission", param_hint="topic update")
    written = queues if write_queues is None else write_queues
    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.update_topic(name, read_queues=queues, write_queues=written, permission=permission, broker=broker)
    words = {
        result.broker: f"{'updated' if result.value.changed else 'has it '}   {_settings(result.value.topic)}"
        for result in results
        if result.value is not None
    }
    return report("topic", name, results, words, json=json)


@app.command(epilog=example("topic delete orders"))
def delete(name: Topic, broker: Broker = None, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """Delete a topic in every broker group. Its queues can no longer be read; made again, it goes on after its last offset."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.delete_topic(name, broker=broker)
    return report_deleted("topic", name, results, TopicNotFound, json=json)


@app.command("list", epilog=example("topic list", "topic list --json"))
def list_all(broker: Broker = None, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """List the topics of every broker group."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.list_topics(broker=broker)
    found = [(result.broker, topic) for result in results for topic in result.value or ()]
    if json:
        topics = [
            {
                "broker": group,
                "topic": one.name,
                "read_queues": one.read_queues,
                "write_queues": one.write_queues,
                "permission": one.permission,
            }
            for group, one in found
        ]
        say_json({"topics": topics, "failed": failures(results)})
    else:
        rows = [
            (group, printable(one.name), f"{one.read_queues}", f"{one.write_queues}", permission_words(one.permission))
            for group, one in found
        ]
        for line in table([("BROKER", "TOPIC", "READ QUEUES", "WRITE QUEUES", "PERMITS"), *rows]):
            say(line)
    return shown_exit(results)


@app.command(epilog=example("topic describe orders"))
def describe(name: Topic, broker: Broker = None, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """Show a topic and what each of its queues holds."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.describe_topic(name, broker=broker)
    found = [(result.broker, result.value) for result in results if result.value is not None]
    if json:
        groups = [
            {
                "broker": group,
                "node": one.node,
                "read_queues": one.topic.read_queues,
                "write_queues": one.topic.write_queues,
                "permission": one.topic.permission,
                "queues": [{"queue": queue.queue, "min_offset": queue.min_offset, "max_offset": queue.max_offset} for queue in one.queues],
            }
            for group, one in found
        ]
        say_json({"topic": name, "groups": groups, "failed": failures(results)})
    else:
        rows = [
            (
                group,
                f"{queue.queue}",
                f"{queue.min_offset:,}",
                f"{queue.max_offset:,}",
                f"{queue.max_offset - queue.min_offset:,}",
                one.node,
            )
            for group, one in found
            for queue in one.queues
        ]
        for line in table([("BROKER", "QUEUE", "FIRST", "END", "MESSAGES", "AS ON"), *rows]):
            say(line)
    return shown_exit(results)


def _settings(topic: TopicConfig) -> str:
    return f"{topic.read_queues} queues to read, {topic.write_queues} to write, {permission_words(topic.permission)}"
