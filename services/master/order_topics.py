"""Marks the topics that nameservers have an order configuration of, so that RocketMQ's tools and a takeover by RocketMQ see it."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NoReturn

import structlog

from dittomq.broker.metadata import Metadata
from dittomq.doors.clock import Clock
from dittomq.errors import DiskFull, NotReady
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig
from dittomq.naming.registrar import RouteUpdate

log = structlog.get_logger()


class OrderTopics:
    """Sets the flag and, like RocketMQ, never takes it back: a nameserver that lost its values unmarks nothing.

    `leading_epoch` tells the epoch in which this master leads, or raises NotReady.
    """

    def __init__(self, metadata: Metadata, clock: Clock, leading_epoch: Callable[[], int]) -> None:
        self._metadata = metadata
        self._clock = clock
        self._leading_epoch = leading_epoch
        self._wanted: Collection[str] = ()
        self._missing = asyncio.Event()

    def on_route_update(self, news: RouteUpdate) -> None:
        """Nameservers answered: what they list and this node has unmarked is to be marked, now or at the next answer."""
        self._wanted = news.order_topics
        if self._unmarked(self._metadata.table(TOPICS)):
            self._missing.set()

    async def run(self) -> NoReturn:
        """Mark topics until cancelled."""
        while True:
            await self._missing.wait()
            self._missing.clear()
            try:
                self._leading_epoch()
                await self._metadata.change(TOPICS, self._marked)
            except (NotReady, DiskFull):
                continue
            log.info("order_topics_marked", topics=len(self._wanted))

    def _unmarked(self, table: Table[TopicConfig]) -> list[TopicConfig]:
        return [row for name in self._wanted if (row := table.rows.get(name)) is not None and not row.order]

    def _marked(self, table: Table[TopicConfig]) -> Table[TopicConfig]:
        rows = [replace(row, order=True) for row in self._unmarked(table)]
        return table.changed([*table.rows.values(), *rows], self._leading_epoch(), self._clock.wall_ms()) if rows else table
