"""A cluster that ends with the process that started it, however that ends."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from dittomq.testing import processes


@contextlib.contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """While the block runs, a SIGKILL of this process ends the cluster of `folder` too. Not for clusters that are to outlive a command.

    A watchman holds the reading end of a pipe whose writing end only this process has.
    """
    reading, writing = os.pipe()  # neither is inherited, so no service keeps the watchman from hearing of our end
    watchman = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "dittomq.testing.watchman", str(folder)],
        processes.module_environment(),
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reading, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    os.close(reading)
    try:
        yield
    finally:
        os.close(writing)
        os.waitpid(watchman, 0)
