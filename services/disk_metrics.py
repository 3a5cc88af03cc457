"""How long a node's disk takes for its syncs, as a metric: a slow one is seen before it misses a deadline."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
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
        self._seconds = Histogram("dittomq_disk_sync_seconds", says, ["folder"], buckets=_BUCKETS_S, registry=registry)

    @contextlib.contextmanager
    def timed(self, path: str) -> Iterator[None]:
        """A sync of that file or folder is under way while the block runs. In any thread."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            folder = path[self._from :].partition("/")[0]
            self._seconds.labels(folder if folder in _FOLDERS else ".").observe(self._clock.monotonic() - began)
