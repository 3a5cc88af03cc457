"""The worlds that `make explore` goes through: each is exhausted, smallest first."""

from typing import Final

from tests.explore.values import Bounds

SMALLEST: Final = (
    Bounds(copies=1, epochs=2, appends=1, changes=0),
    Bounds(copies=2, epochs=2, appends=1, changes=0),
    Bounds(copies=3, epochs=2, appends=1, changes=0),
)
"""These fit into a test."""

WORLDS: Final = (
    *SMALLEST,
    Bounds(copies=1, epochs=2, appends=1, changes=1),
    Bounds(copies=2, epochs=2, appends=1, changes=1),
    Bounds(copies=3, epochs=2, appends=1, changes=1),
    Bounds(copies=2, epochs=2, appends=1, changes=1, members=2),
    Bounds(copies=2, epochs=2, appends=1, changes=1, parts=True),
    Bounds(copies=2, epochs=3, appends=1, changes=0, losses=1),
    Bounds(copies=2, epochs=2, appends=1, changes=1, losses=1, tails=True),
    Bounds(copies=1, epochs=3, appends=1, changes=0, partial=True),
    Bounds(copies=2, epochs=3, appends=1, changes=0, partial=True),
    Bounds(copies=3, epochs=3, appends=1, changes=0),
    Bounds(copies=2, epochs=3, appends=2, changes=0),
    Bounds(copies=2, epochs=2, appends=2, changes=2),
    Bounds(copies=1, epochs=3, appends=1, changes=1),
    Bounds(copies=2, epochs=3, appends=1, changes=1),
)
