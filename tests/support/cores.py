"""All cores of this machine, for work that is cut into many pieces."""

import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def on_all_cores(begin: Callable[[], None] | None = None) -> ProcessPoolExecutor:
    """As many processes as there are cores, each of which calls `begin` first.

    They are spawned: forking a process that has threads is no way to begin.
    """
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=multiprocessing.get_context("spawn"), initializer=begin)
