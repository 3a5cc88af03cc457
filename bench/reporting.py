"""How a benchmark is asked and how it answers: flags, a bar, a table or one JSON document."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.machine import machine
from bench.ratios import HEADINGS, Figure
from dittomq.cli.output import table
from dittomq.errors import DittoError

Step = Callable[[str], None]
"""Called after each run with what was done."""
Measure = Callable[[Path, bool], list[Figure]]
"""Measures in a folder of its own, with sizes that mean nothing when it is to be quick."""


def parser_of(program: str, description: str | None, measures: Collection[str]) -> argparse.ArgumentParser:
    """The flags that every benchmark has."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--quick", action="store_true", help="sizes so small that the figures mean nothing: does it run?")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--only", action="append", choices=list(measures), help="this measure only; may be given again")
    parser.add_argument(
        "--dir", type=Path, metavar="FOLDER", help="where stores are made and removed again (default: the folder for temporary files)"
    )
    return parser


def answer(options: argparse.Namespace, measured: Callable[[Path], list[Figure]]) -> int:
    """Measure in a folder of its own that is removed again, print; the exit status."""
    try:
        with tempfile.TemporaryDirectory(prefix="dittomq-bench-", dir=options.dir) as folder:
            where = machine(Path(folder))
            figures = measured(Path(folder))
    except DittoError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if options.json:
        document = {"schema": 1, "machine": where, "figures": [figure.document() for figure in figures]}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print("\n".join([*table([HEADINGS, *(figure.row() for figure in figures)]), ""]))
        print("\n".join(f"{name}: {value}" for name, value in where.items()))
    return 0


def measured_in_turn(measures: Mapping[str, Measure], folder: Path, options: argparse.Namespace) -> list[Figure]:
    """The figures of all measures that were asked for, each in a folder of its own."""
    figures: list[Figure] = []
    chosen: list[str] = options.only or list(measures)
    with bar(len(chosen)) as step:
        for name in chosen:
            (folder / name).mkdir()
            figures += measures[name](folder / name, options.quick)
            step(name)
    return figures


@contextmanager
def bar(total: int) -> Iterator[Step]:
    """A bar on a terminal. It is drawn between runs only: a thread that draws would be measured too."""
    columns: Sequence[TextColumn | BarColumn | MofNCompleteColumn | TimeElapsedColumn] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("starting", total=total)

        def step(done: str) -> None:
            progress.update(task, advance=1, description=done, refresh=True)

        yield step
