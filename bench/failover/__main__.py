"""`python -m bench.failover`: how long producers wait when the master is killed, suspended, parted or replaced, and that nothing is lost.

Times are figures; a message that was acknowledged and is lost, is there twice or is wrong makes the exit code 1.
"""

import argparse
import asyncio
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest
import uvloop

from bench.failover import scenarios
from bench.failover.group import MeasuredGroup, group_of
from bench.failover.scenarios import ScenarioContext, ScenarioRun
from bench.machine import machine
from bench.ratios import percentile
from bench.replication.pairs import up
from bench.reporting import bar
from dittomq.cli.output import table
from dittomq.errors import DittoError
from dittomq.rpc.buffers import keep_buffers
from dittomq.testing import LocalCluster, Shape
from dittomq.testing.state import NAMESERVER, Settings
from tests.support.etcd import etcd_members
from tests.support.partitioned_network import NoNamespacesError, PartedCluster, parted_network

SLAVES = 2
NODES = (NAMESERVER, *(f"a/{number}" for number in range(SLAVES + 1)))


class Backend(StrEnum):
    """What keeps the group record."""

    NAMESERVER = "nameserver"
    ETCD = "etcd"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`runs` of it with each of `backends`, unless somebody asks for others. `parts` needs a network that can be parted."""

    act: Callable[[MeasuredGroup, ScenarioContext], Awaitable[ScenarioRun]]
    runs: int
    backends: tuple[Backend, ...] = (Backend.NAMESERVER,)
    members: int = 1
    parts: bool = False


SCENARIOS = {
    "kill": Scenario(scenarios.kill, 20, (Backend.NAMESERVER, Backend.ETCD)),
    "stop": Scenario(scenarios.stop, 10),
    "part": Scenario(scenarios.part, 10, parts=True),
    "switchover": Scenario(scenarios.switchover, 20),
    "etcd-members": Scenario(scenarios.etcd_members, 3, (Backend.ETCD,), members=3),
}


@dataclass(slots=True)
class ResultRow:
    """What all runs of one scenario with one backend found. `broken`: why there are not more of them."""

    scenario: str
    backend: Backend
    runs: list[ScenarioRun] = field(default_factory=list)
    broken: str = ""

    @property
    def is_right(self) -> bool:
        """Whether every check of every run holds."""
        return not self.broken and all(run.is_right for run in self.runs)


class _LeftOutError(Exception):
    """A scenario cannot be measured on this machine; why."""


def main() -> int:
    """Measure, print, and leave nothing behind: no process, no file. 1 when a check fails."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves by the way that ends what was started
    keep_buffers()
    rows: list[ResultRow] = []
    for name in dict.fromkeys(options.scenario or SCENARIOS):
        for backend in dict.fromkeys(options.backend or SCENARIOS[name].backends):
            try:
                rows.append(_measured(name, backend, options))
            except _LeftOutError as why:
                print(f"{name} with {backend} is left out: {why}", file=sys.stderr)
    print(_document(rows, options) if options.json else "\n".join(_lines(rows)))
    return 0 if all(row.is_right for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="this one only; may be given again")
    parser.add_argument("--backend", action="append", type=Backend, choices=list(Backend), help="this one only; may be given again")
    parser.add_argument("--runs", type=int, metavar="COUNT", help="runs of each scenario (default: 20, 10 or 3, as the scenario takes)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where stores are made (default: the folder for temporary files)")
    parser.add_argument("--keep", action="store_true", help="leave the nodes' folders and logs, and say where they are")
    return parser.parse_args()


def _measured(name: str, backend: Backend, options: argparse.Namespace) -> ResultRow:
    scenario, row = SCENARIOS[name], ResultRow(name, backend)
    if scenario.parts and backend is not Backend.NAMESERVER:
        raise _LeftOutError("the network that is parted has no etcd in it")
    if name == "etcd-members" and backend is not Backend.ETCD:
        raise _LeftOutError("it is about the members of etcd")
    runs = scenario.runs if options.runs is None else options.runs
    with _folder(options) as folder, ExitStack() as entered, bar(runs) as step:
        cluster, around = _cluster(scenario, backend, folder, entered)

        async def run() -> None:
            async with up(cluster) as started, group_of(started) as group:
                for _ in range(runs):
                    row.runs.append(await scenario.act(group, around))
                    step(f"{name}, {backend}")

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(run())
        except (DittoError, TimeoutError, ExceptionGroup) as broken:
            row.broken = str(broken)
    return row


def _cluster(scenario: Scenario, backend: Backend, folder: Path, entered: ExitStack) -> tuple[LocalCluster, ScenarioContext]:
    """The cluster, not started yet, and what else there is around it."""
    settings: Settings = {"coordination.backend": str(backend)}
    around = ScenarioContext()
    try:
        if backend is Backend.ETCD:
            etcd = entered.enter_context(etcd_members(folder / "etcd", scenario.members))
            settings = {**settings, "coordination.endpoints": list(etcd.endpoints)}
            around = ScenarioContext(etcd=etcd)
        shape = Shape(slaves=SLAVES, master_settings=settings, slave_settings=settings, usual_ports=False)
        if scenario.parts:
            network = entered.enter_context(parted_network(NODES))
            return PartedCluster(folder / "cluster", shape, network), ScenarioContext(network=network)
    except (pytest.skip.Exception, NoNamespacesError) as why:
        raise _LeftOutError(str(why)) from why
    return LocalCluster(folder / "cluster", shape), around


@contextmanager
def _folder(options: argparse.Namespace) -> Iterator[Path]:
    if options.keep:
        folder = Path(tempfile.mkdtemp(prefix="dittomq-failover-", dir=options.dir))
        print(f"files are in {folder}", file=sys.stderr)
        yield folder
    else:
        with tempfile.TemporaryDirectory(prefix="dittomq-failover-", dir=options.dir) as made:
            yield Path(made)


_HEADINGS = (
    "scenario",
    "store",
    "runs",
    "pause p50",
    "max",
    "back p50",
    "max",
    "acknowledged",
    "lost",
    "twice",
    "wrong",
    "late",
    "failures",
)


def _lines(rows: Sequence[ResultRow]) -> list[str]:
    lines = table([_HEADINGS, *(_cells(row) for row in rows)])
    for row in rows:
        lines += [f"{row.scenario} with {row.backend} broke off: {row.broken}"] if row.broken else []
        for number, run in enumerate(row.runs, 1):
            problems = [*run.checked.wrong, *filter(None, [run.problem])]
            lines += [f"{row.scenario} with {row.backend}, run {number}: {problem}" for problem in problems]
        kinds = sorted({kind for run in row.runs for kind in run.failures})
        lines += [f"{row.scenario} with {row.backend}, producers saw {kind}, {_failures(row, kind):,} messages" for kind in kinds]
    with tempfile.TemporaryDirectory() as folder:
        where = machine(Path(folder))
    return [*lines, "", *(f"{name}: {value}" for name, value in where.items())]


def _failures(row: ResultRow, kind: str) -> int:
    return sum(run.failures.get(kind, 0) for run in row.runs)


def _cells(row: ResultRow) -> tuple[str, ...]:
    pauses = [run.pause_s for run in row.runs]
    back = [run.follows_s for run in row.runs if run.follows_s is not None]
    sums = [
        sum(run.acknowledged for run in row.runs),
        sum(run.checked.lost for run in row.runs),
        sum(run.checked.twice for run in row.runs),
        sum(not run.is_right for run in row.runs),
        sum(run.late for run in row.runs),
        sum(count for run in row.runs for count in run.failures.values()),
    ]
    return (row.scenario, str(row.backend), f"{len(row.runs)}", *_span(pauses), *_span(back), *(f"{each:,}" for each in sums))


def _span(seconds: Sequence[float]) -> tuple[str, str]:
    return (f"{statistics.median(seconds):.2f} s", f"{max(seconds):.2f} s") if seconds else ("", "")


def _document(rows: Sequence[ResultRow], options: argparse.Namespace) -> str:
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        where = machine(Path(folder))
    found = [
        {
            "scenario": row.scenario,
            "backend": row.backend,
            "is_right": row.is_right,
            "broken": row.broken,
            "pause_s": {"p50": percentile(pauses, 50), "max": max(pauses), "each": pauses} if pauses else None,
            "back_s": [run.follows_s for run in row.runs],
            "acknowledged": sum(run.acknowledged for run in row.runs),
            "lost": sum(run.checked.lost for run in row.runs),
            "twice": sum(run.checked.twice for run in row.runs),
            "late": sum(run.late for run in row.runs),
            "failures": [dict(run.failures) for run in row.runs],
            "problems": [problem for run in row.runs for problem in (*run.checked.wrong, run.problem) if problem],
        }
        for row in rows
        for pauses in [[run.pause_s for run in row.runs]]
    ]
    return json.dumps({"schema": 1, "machine": where, "scenarios": found}, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
