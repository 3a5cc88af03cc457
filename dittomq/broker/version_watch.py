"""Tells slaves when a table has a new version, at most once a second."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from dittomq.broker.change_watches import ChangeWatches, WatchLimits
from dittomq.broker.metadata import Metadata
from dittomq.doors.clock import Clock
from dittomq.metadata.formats import KINDS
from dittomq.routes import DataVersion

MAX_VERSION_WATCHERS: Final = 64
SHORTEST_GAP_S: Final = 1.0
_LOOK_S: Final = 0.25

Versions = Mapping[str, DataVersion]
"""By the name of the table's kind."""


class VersionWatches:
    """The watches of one node's tables, at most 64."""

    def __init__(self, node: str, metadata: Metadata, clock: Clock) -> None:
        self._metadata = metadata
        self._watches = ChangeWatches(f"the list of watches of the tables of {node}", MAX_VERSION_WATCHERS, clock)

    async def watch(self, max_responses: int, send: Callable[[Versions], Awaitable[object]]) -> None:
        """Tell until all answers are given or the node stops. Raises LimitReached, and UnreadError when an answer is not taken."""

        def send_named(versions: tuple[DataVersion, ...]) -> Awaitable[object]:
            return send({kind.name: version for kind, version in zip(KINDS, versions, strict=True)})

        limits = WatchLimits(_LOOK_S, max_responses, SHORTEST_GAP_S)
        await self._watches.serve(lambda: self._metadata.versions, send_named, limits, essence=lambda versions: versions)

    def stop(self) -> None:
        """The node stops: end all watches, and refuse no new one, which ends after its first answer."""
        self._watches.stop()
