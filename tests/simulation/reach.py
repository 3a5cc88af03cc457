"""Which functions of the product the seeds enter, and which never: `python -m tests.simulation.reach --seeds 60 --stressed 30`.

Every function of dittomq and services is counted once, whatever it is called through; generated code is not. A run under this tool costs
three times what it costs without.
"""

import argparse
import functools
import inspect
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

from tests.simulation.parallel_seeds import stress_of
from tests.simulation.simulate import simulate
from tests.support.cores import on_all_cores

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("dittomq", "services")
_GENERATED = "_pb"
_ELSEWHERE = {
    "command line, demo and local clusters": ("dittomq/cli/", "dittomq/testing"),
    "tools for a store that nobody has open": ("dittomq/commitlog/offline/",),
    "stores of RocketMQ and of the first release": ("rocketmq_import", "rocketmq_records", "first_release"),
    "other coordination stores than nameservers": ("dittomq/coordination/",),
    "threads, sockets and disks of the machine": ("dittomq/doors/", "disk/storage.py", "rpc/channel.py", "sync_", "io_watch"),
    "processes, settings, metrics": ("metrics", "ops.py", "__main__", "process.py", "logs.py", "settings/", "watchdog", "config.py"),
    "audits": ("audit", "replica_reader", "retention_pins"),
    "sentences of errors and reasons": (":__str__", ":__repr__", "errors/"),
}
"""Why the simulator does not enter them: parts of their names, the first that fits counts."""

Name = str
"""path:qualified name:line"""


def main() -> int:
    """Print how many functions were entered, and the others by why they were not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.reach", description="Say which functions of the product seeds enter.")
    parser.add_argument("--seeds", type=int, default=60, help="how many to run, from 0 on (default %(default)s)")
    parser.add_argument("--stressed", type=int, default=30, help="how many to run with many faults of few kinds (default %(default)s)")
    arguments = parser.parse_args()
    runs = [*((seed, False) for seed in range(arguments.seeds)), *((seed, True) for seed in range(arguments.stressed))]
    entered: set[Name] = set()
    with on_all_cores() as pool:
        for found in pool.map(_entered, *zip(*runs, strict=True)):
            entered |= found
    known = set(_functions())
    print(f"{len(runs)} runs enter {len(known & entered):,} of {len(known):,} functions")
    missed = defaultdict(list)
    for name in sorted(known - entered):
        missed[_why(name)].append(name)
    for why, names in sorted(missed.items()):
        print(f"\n{why}: {len(names):,}", *names, sep="\n  ")
    return 0


def _entered(seed: int, stressed: bool) -> set[Name]:
    threading.setprofile(_called)
    sys.setprofile(_called)
    try:
        simulate(seed, stress=stress_of(seed) if stressed else ())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {name for code in _codes if (name := _name(code))}


_codes: set[CodeType] = set()  # of all runs of this process: its threads outlive a run


def _called(frame: FrameType, event: str, _: object) -> None:
    if event == "call":
        _codes.add(frame.f_code)


@functools.cache
def _name(code: CodeType) -> Name:
    """Of a function of the product; "" of any other."""
    path = Path(code.co_filename)
    if not path.is_relative_to(_ROOT) or path.relative_to(_ROOT).parts[0] not in _PACKAGES:
        return ""
    return f"{path.relative_to(_ROOT)}:{code.co_qualname}:{code.co_firstlineno}"


def _functions() -> Iterator[Name]:
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            if _GENERATED not in path.parts:
                yield from _functions_in(compile(path.read_bytes(), str(path), "exec"))


def _functions_in(code: CodeType) -> Iterator[Name]:
    """Those with a body and a name of their own: neither lambdas and comprehensions, nor what a protocol only declares."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            is_function = bool(inner.co_flags & inspect.CO_OPTIMIZED)  # a class body is none
            if is_function and not inner.co_name.startswith("<") and not _is_declared_only(inner):
                yield _name(inner)
            yield from _functions_in(inner)


def _is_declared_only(code: CodeType) -> bool:
    """Whether it is but a signature with a docstring: it returns None and names nothing."""
    return not code.co_names and not code.co_varnames[code.co_argcount + code.co_kwonlyargcount :] and len(code.co_code) <= 8


def _why(name: Name) -> str:
    return next((why for why, parts in _ELSEWHERE.items() if any(part in name for part in parts)), "reachable, and not met")


if __name__ == "__main__":
    sys.exit(main())
