"""Every command that README.md and the guides show runs, and prints what they say it prints, figures aside."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import Client
from dittomq.testing import LocalCluster, Shape
from tests.support.command_line import CommandLine
from tests.support.documents import Shown, commands, same_shape
from tests.support.tree import files
from tests.support.waiting import eventually

_BY_OTHERS = (
    "make ",
    "grpcurl ",
    "kubectl ",
    "docker ",
    "for n in ",
)  # run by CI, test_rpc_examples.py, tests/kubernetes, tests/containers


def _ours(path: Path | str) -> list[Shown]:
    """What the page shows that is to be run here."""
    return [each for each in commands(path) if not each.command.startswith(_BY_OTHERS)]


_GUIDES = [path for path in files(".md") if path.parts[0] == "docs" and path.name != "rpc.md" and _ours(path)]


@contextlib.contextmanager
def checkout(folder: Path) -> Iterator[CommandLine]:
    """A command line in a folder that looks like a checkout in which `make` was run; nothing of it is left running."""
    activate = folder / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    cluster = LocalCluster(folder / ".dittomq")
    try:
        yield CommandLine(folder, STORE=str(cluster.folder / "a-0"))
    finally:
        cluster.stop(grace_s=0.0)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    with checkout(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The same, with the cluster that all guides speak of: a master, two slaves verified, and messages in topic `orders`."""
    with checkout(tmp_path_factory.mktemp("guides")) as command:
        _start(command)
        yield command


def _start(command: CommandLine) -> None:
    cluster = LocalCluster(command.folder / ".dittomq", Shape(slaves=2, usual_ports=False))
    cluster.start()
    cluster.wait_in_sync()
    command.run("context", "add", "local", cluster.nameserver)
    command.run("context", "use", "local")
    made = command.shell("dittomq topic create orders && seq 1000 | dittomq publish orders")
    assert made.code == 0, made.err
    with Client(cluster.nameserver) as mq:
        eventually(lambda: all(view.verified_offset for view in mq.admin.ha_status("a/0").nodes[1:]), "heartbeats have compared the copies")


def test_the_readme_shows_what_happens(command: CommandLine) -> None:
    _run_all(command, _ours("README.md"))


@pytest.mark.parametrize("path", _GUIDES, ids=str)
def test_a_guide_shows_what_happens(path: Path, running: CommandLine) -> None:
    _run_all(running, _ours(path))


def test_figures_may_differ_and_words_may_not() -> None:
    written = ("a  created   8 queues", "…", "end 1.5 s")

    assert same_shape(written, "a  created   16 queues\nmore\nend 12.25 s\n")
    assert same_shape(written, "a  created   8 queues\nend 1 s\n")
    assert not same_shape(written, "a  refused   8 queues\nend 1 s\n")
    assert not same_shape(written, "a  created   8 queues\nend 1 s\nand more\n")


def _run_all(command: CommandLine, shown: list[Shown]) -> None:
    for each in shown:
        ran = command.shell(each.command)
        said = ran.out if ran.out or not ran.err else ran.err
        assert same_shape(each.printed, said), f"$ {each.command}\n{ran.out}\n{ran.err}"
