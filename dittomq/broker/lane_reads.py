"""Reads of a store on a lane, as everybody does them who answers or delivers from it."""

from collections.abc import Callable
from typing import TypeVar

from dittomq.doors.workers import Executor
from dittomq.errors import CorruptRecord

R = TypeVar("R")


async def read_on(lane: Executor, work: Callable[[], R], damaged: Callable[[int], None]) -> R:
    """Let the lane do `work`. `damaged` is told where a record is not whole, so that it is repaired; CorruptRecord is raised then."""
    try:
        return await lane.call(work)
    except CorruptRecord as problem:
        damaged(problem.position)
        raise
