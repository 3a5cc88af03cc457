"""What a folder says of its tests: a mark, a time limit, a tier, whether they run alone. And a library that harms a process's disk."""

import signal
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.containers import pytest_sessionfinish  # noqa: F401 - pytest finds its hooks here
from tests.support.disk_faults import Actors, actors, build_shim
from tests.support.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 - pytest finds its hooks here

# A busy machine is no failure; a failure can be replayed. Not Hypothesis's own profile for CI, which tries the same examples every time.
settings.register_profile("here", settings.get_profile("default"), deadline=None, print_blob=True)
settings.load_profile("here")


class Tier(IntEnum):
    """Which command runs a test first; a later one runs it as well."""

    CHECK = 1  # `make check`, all day: 3 minutes on 2 cores
    TEST = 2  # `make test`, what CI runs: 12 minutes
    NIGHTLY = 3  # `make nightly`


class Folder(NamedTuple):
    """How tests of one folder run. Where `@pytest.mark.tier("nightly")` stands on a test, a class or a module, that is its tier."""

    timeout_s: int
    tier: Tier = Tier.TEST
    alone: bool = False  # they load both cores or keep real deadlines: one of the folder at a time


FOLDERS = {
    "architecture": Folder(timeout_s=600, tier=Tier.CHECK),
    "containers": Folder(timeout_s=900, alone=True),
    "coordination": Folder(timeout_s=1800, alone=True),
    "crash": Folder(timeout_s=300),
    "deploy": Folder(timeout_s=300),
    "explore": Folder(timeout_s=300),
    "integration": Folder(timeout_s=300, alone=True),
    "interop": Folder(timeout_s=900, alone=True),
    "kubernetes": Folder(timeout_s=1800, alone=True),
    "simulation": Folder(timeout_s=600),
    "soak": Folder(timeout_s=600, alone=True),
    "spark": Folder(timeout_s=900, alone=True),
    "transcripts": Folder(timeout_s=60, tier=Tier.CHECK),
    "unit": Folder(timeout_s=120, tier=Tier.CHECK),
    "vectors": Folder(timeout_s=120),
}
_LAST = "kubernetes"  # tests with this name in theirs, of a folder that runs alone: CI builds one beside the others
_TESTS = Path(__file__).parent


class ByFolder(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist comes without types
    """Hands tests to the workers one by one, and all of a folder that run alone to the same worker: the larger folders first, _LAST last.

    So real nodes with deadlines may run beside a JVM, as they do beside the simulator, but no two tests of one such folder.

    Not `--dist loadgroup`: with pytest 9.2 it forgets the groups and says nothing.
    """

    def _split_scope(self, nodeid: str) -> str:
        _, name, *_ = nodeid.split("/")
        if not FOLDERS[name].alone:
            return nodeid
        return _LAST if _LAST in nodeid else name

    def _assign_work_unit(self, node: WorkerController) -> None:
        if _LAST in self.workqueue:
            self.workqueue.move_to_end(_LAST)
        super()._assign_work_unit(node)


def pytest_addoption(parser: pytest.Parser) -> None:
    names = [tier.name.lower() for tier in Tier]
    parser.addoption(
        "--tier", choices=names, default="test", help="run the tests of this tier and of those before it (default %(default)s)"
    )


def pytest_configure() -> None:
    unknown = {path.relative_to(_TESTS).parts[0] for path in _TESTS.rglob("test_*.py")} - set(FOLDERS)
    if unknown:
        raise pytest.UsageError(f"FOLDERS in tests/conftest.py does not say how tests in {', '.join(sorted(unknown))} run")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's background: whatever is started would ignore it as well
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFolder:
    return ByFolder(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = Tier[config.getoption("--tier").upper()]
    named = {Path(argument.split("::")[0]).resolve() for argument in config.args if ".py" in argument}  # these run whatever their tier is
    chosen: list[pytest.Item] = []
    later: list[pytest.Item] = []
    for item in items:
        name = item.path.relative_to(_TESTS).parts[0]
        item.add_marker(name)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FOLDERS[name].timeout_s))
        (chosen if _tier(item, name) <= wanted or item.path in named else later).append(item)
    config.hook.pytest_deselected(items=later)
    items[:] = chosen


def _tier(item: pytest.Item, folder: str) -> Tier:
    marked = item.get_closest_marker("tier")
    return FOLDERS[folder].tier if marked is None else Tier[marked.args[0].upper()]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be preloaded into a process."""
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def harmed(shim: Path) -> Iterator[Actors]:
    """Processes that use a store while their disk harms them."""
    with actors(shim) as made:
        yield made
