"""④ What leaves this node for other replicas, within the limits of `[replication]`: streams and fetched ranges in the same turns."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from dittomq.broker.config import ReplicationTable
from dittomq.doors.clock import Clock
from dittomq.errors import InvalidField
from dittomq.replication.events import RangePiece
from dittomq.replication.throttle import Throttle, ThrottleTurns

_MOST_NAME: Final = 128


class ReplicationThrottle:
    """One node's. Whoever waits holds back nobody but itself."""

    def __init__(self, table: ReplicationTable, clock: Clock) -> None:
        self._clock = clock
        self._throttle = Throttle(shared_bytes_per_s=table.max_bytes_per_s, own_bytes_per_s=table.max_bytes_per_s_per_slave)

    def to(self, node: str) -> ThrottleTurns:
        """The turns of one stream to that node."""
        return self._throttle.of(node)

    async def throttled(self, node: str, pieces: AsyncGenerator[RangePiece, None]) -> AsyncGenerator[RangePiece, None]:
        """The pieces for that node, "" when it does not say which it is, each when its time has come. One is kept at a time.

        Raises InvalidField for a name of more than 128 characters.
        """
        if len(node) > _MOST_NAME:
            raise InvalidField("node", f"{len(node):,} characters, the limit is {_MOST_NAME}")
        turns = self._throttle.of(node)
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                while (due := turns.due(len(piece.data), now := self._clock.monotonic())) > now:  # noqa: ASYNC110  # time is what it waits for
                    await asyncio.sleep(due - now)
                yield piece
