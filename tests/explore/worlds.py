"""The worlds that `make explore` goes through: each is exhausted, smallest first."""

from typing import Final

from tests.explore.values import SmallBounds

SMALLEST: Final = (
    SmallBounds(copies=1, epochs=2, appends=1, changes=0),
    SmallBounds(copies=2, epochs=2, appends=1, changes=0),
    SmallBounds(copies=3, epochs=2, appends=1, changes=0),
)
"""These fit into a test."""

WORLDS: Final = (
    *SMALLEST,
    SmallBounds(copies=1, epochs=2, appends=1, changes=1),
    SmallBounds(copies=2, epochs=2, appends=1, changes=1),
    SmallBounds(copies=3, epochs=2, appends=1, changes=1),
    SmallBounds(copies=2, epochs=2, appends=1, changes=1, members=2),
    SmallBounds(copies=2, epochs=2, appends=1, changes=1, parts=True),
    SmallBounds(copies=2, epochs=3, appends=1, changes=0, unsynced=True),
    SmallBounds(copies=2, epochs=2, appends=1, changes=1, unsynced=True),
    SmallBounds(copies=2, epochs=3, appends=1, changes=0, losses=1),
    SmallBounds(copies=2, epochs=2, appends=1, changes=1, losses=1, tails=True),
    SmallBounds(copies=1, epochs=3, appends=1, changes=0, partial=True),
    SmallBounds(copies=2, epochs=3, appends=1, changes=0, partial=True),
    SmallBounds(copies=3, epochs=3, appends=1, changes=0),
    SmallBounds(copies=2, epochs=2, appends=2, changes=2),
    SmallBounds(copies=1, epochs=3, appends=1, changes=1),
    SmallBounds(copies=2, epochs=3, appends=1, changes=1),
)
