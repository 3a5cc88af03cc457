"""`python -m bench.store`: what the store costs by itself, without network and replicas, beside the least code for the same bytes."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from bench.ratios import Figure
from bench.reporting import answer, bar, parser_of
from bench.store import appending, at_rest, encoding, receiving, recovering, rolling, verifying
from services.process import settle_memory

Measure = Callable[[Path, bool], list[Figure]]
"""Measures in a folder of its own, with sizes that mean nothing when it is to be quick."""

MEASURES: dict[str, Measure] = {
    "appending": appending.measure,
    "encoding": encoding.measure,
    "rolling": rolling.measure,
    "recovering": recovering.measure,
    "receiving": receiving.measure,
    "at-rest": at_rest.measure,
    "verifying": verifying.measure,
}


def main() -> int:
    """Measure, print, and leave nothing behind: no process, no file."""
    options = parser_of("python -m bench.store", __doc__, MEASURES).parse_args()
    settle_memory()  # as a master does
    return answer(options, lambda folder: _measured(folder, options))


def _measured(folder: Path, options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    chosen: list[str] = options.only or list(MEASURES)
    with bar(len(chosen)) as step:
        for name in chosen:
            (folder / name).mkdir()
            figures += MEASURES[name](folder / name, options.quick)
            step(name)
    return figures


if __name__ == "__main__":
    sys.exit(main())
