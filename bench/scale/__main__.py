"""`python -m bench.scale`: what large tables cost, in the nameserver and in a broker group, on real processes.

Rates that come from the kernel's count of processor time have a step of 10 ms, so each is of many calls.
"""

import sys

import uvloop

from bench.reporting import Measure, answer, measured_in_turn, parser_of
from bench.scale import nameserver, offsets, topics

MEASURES: dict[str, Measure] = {"nameserver": nameserver.measure, "topics": topics.measure, "offsets": offsets.measure}


def main() -> int:
    """Measure, print, and leave nothing behind: no process, no file."""
    uvloop.install()
    options = parser_of("python -m bench.scale", __doc__, MEASURES).parse_args()
    return answer(options, lambda folder: measured_in_turn(MEASURES, folder, options))


if __name__ == "__main__":
    sys.exit(main())
