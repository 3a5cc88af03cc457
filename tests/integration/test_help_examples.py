"""Every command shows an example in its help, and every example works as it is printed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dittomq.cli.app import app
from dittomq.testing import LocalCluster, Shape
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.tier("nightly")

LAST = ("local down", "log new-identity .dittomq/a-1", "local down --delete")
JUST_BEFORE = {
    "audit compare master.dmd slave.dmd": "log digest .dittomq/a-1 -o slave.dmd",
    "ha failover a/1 --dry-run": "ha switchover a/0",  # that of a switchover has made a/1 the master
    "ha failover a/1 --allow-data-loss": "ha switchover a/2",
}
SETTLED = ("ha", "audit", "repair")
LONG = ("demo",)  # run by test_demo.py


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command of the tree that does something, by its name."""
    below = getattr(command, "commands", {})
    for name, child in below.items():
        yield from commands(child, (*path, name))
    if not below or command.invoke_without_command:
        yield " ".join(path), command


COMMANDS = dict(commands(typer.main.get_command(app)))


def examples_of(command: Any) -> list[str]:
    return [line.removeprefix("$ dittomq ") for line in (command.epilog or "").splitlines() if line.startswith("$ ")]


def in_order() -> list[str]:
    """What others need comes before them; what ends the cluster comes last."""
    examples = [example for command in COMMANDS.values() for example in examples_of(command)]
    before = [example for example in examples if example.startswith(("context add", "local up"))]
    before += [example for example in examples if example.startswith(("publish", "log digest", "audit run"))]
    after = [example for example in examples if example.startswith(("group delete", "topic delete"))] + list(LAST)
    between = [example for example in examples if example not in before + after and not example.startswith(LONG)]
    return [*before, *between, *after]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """A folder as a reader of the examples may have it: a cluster with two slaves, a topic, a file, configurations, two digests."""
    folder: Path = tmp_path_factory.mktemp("examples")
    line = CommandLine(folder)
    with LocalCluster(folder / ".dittomq", Shape(slaves=2, usual_ports=False)) as cluster:
        assert line.run("context", "add", "local", cluster.nameserver).code == 0
        assert line.run("context", "use", "local").code == 0
        assert line.run("topic", "create", "orders").code == 0
        (folder / "orders.jsonl").write_text("".join(f'{{"id":"o-{number}","customer":"c-{number % 7}"}}\n' for number in range(500)))
        for role, node in (("master", "a-0"), ("slave", "a-1")):
            (folder / f"{role}.toml").write_text((cluster.folder / f"{node}.toml").read_text())
        yield line


def test_every_command_has_an_example() -> None:
    assert {name for name, command in COMMANDS.items() if not examples_of(command)} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_what_a_command_does_and_its_example(name: str, tmp_path: Path) -> None:
    said = CommandLine(tmp_path).run(*name.split(), "--help")

    assert said.code == 0
    assert "Usage: dittomq" in said.out
    for example in examples_of(COMMANDS[name]):
        assert f"$ dittomq {example}" in said.out


def settle(command: CommandLine, example: str) -> None:
    """A promotion is over when the new master takes writes; its slaves join a moment later."""
    if example.startswith(SETTLED):
        assert command.run("ha", "status", "--wait", "in-sync").code == 0


@pytest.mark.parametrize("example", in_order())
def test_the_example_works(command: CommandLine, example: str) -> None:
    settle(command, example)
    if example in JUST_BEFORE:
        assert command.run(*JUST_BEFORE[example].split()).code == 0
        settle(command, example)

    ran = command.shell(f"dittomq {example}")

    assert ran.code == 0, ran.err
    assert "Traceback" not in ran.err
