"""Positions in a log and in a queue. Every range is half-open: [start, end)."""

from typing import Final, NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""A byte of the commit log; counted from the first byte ever written, also after old segments are gone."""

QueueOffset = NewType("QueueOffset", int)
"""A message of one queue, counted from 0."""

Epoch = NewType("Epoch", int)
"""A master's term; >= 1, grows along the log. 0 where no epoch was opened yet."""

NO_EPOCH = Epoch(0)
"""None was opened yet."""

LAST_EPOCH: Final = Epoch((1 << 62) - 1)
"""The largest that files of ours hold and nodes tell each other of."""
