"""What docs/operations.md shows of containers runs, and prints what it says, figures aside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.containers import engine, images
from tests.support.documents import Shown, commands, same_shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

TAG = "test"
PREFIX = "dittomq-guide"


def shown() -> list[Shown]:
    """The commands, with the images of this tree, and names that no user of the engine has."""
    found = [each for each in commands("docs/operations.md") if each.command.startswith(("docker ", "for n in "))]
    assert len(found) == 7
    return [Shown(_renamed(each.command), tuple(map(_renamed, each.printed))) for each in found]


def _renamed(text: str) -> str:
    for image in ("dittomq", "dittomq-audit"):
        text = text.replace(f"{image}:0.2.0", f"{image}:{TAG}")
    for name in ("dittomq-ns", "dittomq-a-"):
        text = text.replace(name, name.replace("dittomq", PREFIX))
    return text.replace("create dittomq", f"create {PREFIX}").replace("--network dittomq", f"--network {PREFIX}")


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    images(TAG)
    _forget()
    yield CommandLine(tmp_path)
    _forget()


def _forget() -> None:
    names = (f"{PREFIX}-ns", *(f"{PREFIX}-a-{number}" for number in range(3)))
    engine("rm", "--force", *names, check=False)
    engine("volume", "rm", *names, check=False)
    engine("network", "rm", PREFIX, check=False)


def test_a_group_is_run_audited_and_fails_over_as_the_guide_shows(command: CommandLine) -> None:
    for each in shown():
        eventually(lambda each=each: _prints(command, each), f"{each.command} prints {each.printed}", within_s=180)  # type: ignore[misc]


def _prints(command: CommandLine, each: Shown) -> bool:
    """A command that finds no master yet is typed again; one that makes a container is not."""
    ran = command.shell(each.command)
    assert ran.code == 0 or "exec" in each.command or "--rm" in each.command, ran.err
    return same_shape(each.printed, ran.out)
