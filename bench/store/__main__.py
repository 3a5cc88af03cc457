"""`python -m bench.store`: what the store costs by itself, without network and replicas, beside the least code for the same bytes."""

import sys

from bench.reporting import Measure, answer, measured_in_turn, parser_of
from bench.store import appending, at_rest, encoding, receiving, recovering, rolling, verifying
from services.process import settle_memory

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
    return answer(options, lambda folder: measured_in_turn(MEASURES, folder, options))


if __name__ == "__main__":
    sys.exit(main())
