"""How long a node's disk takes for its syncs, as a metric: a slow one is seen before it misses a deadline."""

import functools
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from dittomq.doors.clock import Clock

_FOLDERS: Final = frozenset({"commitlog", "consumequeue", "index", "config", "dittomq"})
_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class SyncMetrics:
    """Of one data directory. What is timed counts when it returns, or fails; a sync that hangs is what the disk watch is for."""

    def __init__(self, data_dir: str, clock: Clock, registry: CollectorRegistry) -> None:
        self._from = len(f"{Path(data_dir)}/")
        self._clock = clock
        says = "Duration of syncs of files and folders, by the folder of the store in which they lie."
        seconds = Histogram("dittomq_disk_sync_seconds", says, ["folder"], buckets=_BUCKETS_S, registry=registry)
        self._of = functools.cache(seconds.labels)

    def timed(self, path: str) -> AbstractContextManager[None]:
        """A sync of that file or folder is under way while the block runs. In any thread."""
        folder = path[self._from :].partition("/")[0]
        return _Timed(self._of(folder if folder in _FOLDERS else "."), self._clock)


class _Timed:
    """One sync."""

    __slots__ = ("_began", "_clock", "_seconds")

    def __init__(self, seconds: Histogram, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began = clock.monotonic()

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        self._seconds.observe(self._clock.monotonic() - self._began)
