"""The same on real file systems: a real process dies at a call, and its disk is what it was at that moment or loses power then.

Only some of the calls: at most one of each kind on each kind of file.
"""

import random
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table
from tests.simulation.parser import ParsedLog
from tests.support.disk_faults import Actors, Call, calls_in, harming
from tests.support.mounts import new_image
from tests.support.power import Rebooted, after_power_loss, booted, fast_folder
from tests.support.real_store import filled, is_whole_or_cut, numbers_in, reopened
from tests.support.replayable_chance import replayable
from tests.support.store_process import FLUSHED, log_of, open_store, table

pytestmark = pytest.mark.tier("nightly")

IMAGE_BYTES = 24 * 1024 * 1024
TORN = b"torn" * 150
MOST = 14


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    with fast_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def image(memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk with a store that is filled and was killed, in the middle of a record, and another one to copy from."""
    image, disk = new_image(memory / "filled", IMAGE_BYTES), tmp_path_factory.mktemp("filled")
    with booted(image, disk):
        store = filled(disk / "store")
        store.close(clean=False)
        shutil.copytree(disk / "store", disk / "master")
        (disk / "slave").mkdir()
        last = max((disk / "store" / "commitlog").iterdir())
        with last.open("r+b") as file:
            file.seek(store.end - int(last.name))
            file.write(TORN)
    return image


def points(calls: list[Call], chance: random.Random) -> list[int]:
    """One call of each kind, on each kind of file, or as many of them as `MOST`."""
    kinds = defaultdict(list)
    for call in calls:
        kinds[call.name, re.sub(r"\d+", "", f"{call.path}")].append(call.number)
    found = [chance.choice(numbers) for numbers in kinds.values()]
    return sorted(chance.sample(found, min(MOST, len(found))))


def found(root: Path) -> ParsedLog:
    """What the start after the power loss finds, and so does the one after that."""
    store, log = reopened(root, Rebooted(root))
    store.close(clean=False)
    again = open_store(Rebooted(root))
    assert (again.end, again.recovery_truncation) == (log.end, None), "a second recovery changes nothing"
    again.close(clean=False)
    return log


def recovered(root: Path, said: list[int]) -> None:
    """What lay torn behind the end is kept, and was told once."""
    appended(root, said)
    [tail] = (root / "dittomq").glob("tail-*")
    assert tail.read_bytes() == TORN


def appended(root: Path, said: list[int]) -> None:
    log = found(root)
    assert numbers_in(log) == list(range(len(log.records)))
    assert len(log.records) >= max(said, default=FLUSHED)


def cut(root: Path, said: list[int]) -> None:
    log = found(root)
    assert is_whole_or_cut(log)
    assert not said or said[-1] <= len(log.records) <= FLUSHED // 2 + 5


def config(root: Path, said: list[int]) -> None:
    held, problem = ConfigFiles(OsStorage(root), "a/0").load(TOPICS)
    tables = [table(rows) for rows in (5, 300, 1)]
    assert not problem or (problem == "is missing" and 0 < len(said) < len(tables)), "its old one is the .bak before it has the name"
    assert held in (tables[len(said) - 1 :] if said else [Table(), tables[0]])[:2]


def received(root: Path, said: list[int]) -> None:
    log = found(root)
    assert log_of(root.parent / "master").content.startswith(log.content)
    assert log.end >= max(said, default=0)


JUDGES: dict[str, tuple[str, Callable[[Path, list[int]], None]]] = {
    "recover": ("store", recovered),
    "append": ("store", appended),
    "checkpoint": ("store", appended),
    "cut": ("store", cut),
    "config": ("store", config),
    "receive": ("slave", received),
}


@pytest.mark.parametrize("deed", JUDGES)
def test_power_that_goes_at_a_call_of_a_real_process_costs_nothing_that_was_durable(
    deed: str, image: Path, memory: Path, harmed: Actors, *, tmp_path: Path
) -> None:
    chance, (store, judge) = replayable(), JUDGES[deed]
    running, lost, switch = memory / "running", memory / "lost", tmp_path / "switch"
    disk, root = tmp_path / "disk", tmp_path / "disk" / store
    when = {} if deed == "recover" else {"when": switch}

    def dies(before: Path, number: int) -> list[int]:
        """Let the process begin on that disk and die at a call; what it had said. Leaves what the loss of power leaves."""
        switch.unlink(missing_ok=True)
        shutil.copyfile(before, running)
        with booted(running, disk) as machine:
            ended = harmed.act(deed, root, harming(root, **when, nth=number, kind="torn"), switch)
            assert ended.status == -signal.SIGKILL
            machine.photograph(lost)
        return [int(line) for line in ended.said]

    shutil.copyfile(image, running)
    with booted(running, disk):
        assert harmed.act(deed, root, harming(root, **when, trace=tmp_path / "calls"), switch).status == 0
    for number in points(calls_in(tmp_path / "calls"), chance):
        print(f"call {number}")
        said = dies(image, number)
        if deed == "recover":
            said += dies(lost, chance.randint(1, 12))  # and once more, in the recovery from that
        with after_power_loss(lost, disk):
            judge(root, said)
