"""`python -m bench.scale`: what large tables cost, in the nameserver and in a broker group, on real processes.

Rates that come from the kernel's count of processor time have a step of 10 ms, so each is of many calls.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from bench.ratios import Figure
from bench.reporting import answer, bar, parser_of
from bench.scale import nameserver, offsets, topics

Measure = Callable[[Path, bool], list[Figure]]
"""Measures in a folder of its own, with sizes that mean nothing when it is to be quick."""

MEASURES: dict[str, Measure] = {"nameserver": nameserver.measure, "topics": topics.measure, "offsets": offsets.measure}


def main() -> int:
    """Measure, print, and leave nothing behind: no process, no file."""
    uvloop.install()
    options = parser_of("python -m bench.scale", __doc__, MEASURES).parse_args()
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
