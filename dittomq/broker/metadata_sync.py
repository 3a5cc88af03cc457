"""A slave's copy of its master's tables: pulled at one version, swapped whole, never back.

The first round comes 3 s after the start, the next ones every 10 s, and at once when woken. The tables are pulled one after the
other and each by itself: one that fails is logged and tried again in the next round, and keeps no other from arriving.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from dittomq.broker.metadata import Metadata
from dittomq.doors.clock import Clock
from dittomq.errors import DittoError, OutOfReach, Refused, VersionChanged
from dittomq.metadata.formats import KINDS, TOPICS, TableKind
from dittomq.metadata.tables import Ask, Page, R, Table, sorted_rows
from dittomq.metadata.topics import is_reserved

FIRST_ROUND_S = 3.0
ROUND_S = 10.0
PAGE_DEADLINE_S = 30.0
ATTEMPTS = 3

log = structlog.get_logger()

QueueEnds = Mapping[str, Mapping[int, int]]


class MetadataSource(Protocol):
    """The master, as a slave asks it for tables."""

    async def fetch(self, kind: TableKind[R], ask: Ask, deadline_s: float) -> Page[R]:
        """One page, or a DittoError within `deadline_s`: OutOfReach without an answer, VersionChanged for a token of an older version."""
        ...


@dataclass(frozen=True, slots=True)
class PullStatus:
    """What became of the pulls of one table. `last_success_s`: monotonic time, None before the first; `problem` empty after a success."""

    last_success_s: float | None = None
    problem: str = ""


class QueuesOfTopics(Protocol):
    """The queues of this node's store."""

    async def ends(self) -> QueueEnds:
        """Of every topic, the queues that hold something, with their ends."""
        ...

    async def empty(self, topic: str, ends: Mapping[int, int]) -> None:
        """Durably empty a topic's queues, unless one of them has grown beyond its end."""
        ...


class MetadataPuller:
    """Follows the master's tables, and empties the queues of topics that are deleted.

    A master may answer with an older version than the one held here (it was restored, or it is not the newest master): it is discarded.
    A recovering master that takes over a slave's log takes over its tables too, with `pull_once`, and leaves its queues alone:
    `queues` is None.
    """

    def __init__(self, source: MetadataSource, metadata: Metadata, clock: Clock, queues: QueuesOfTopics | None) -> None:
        self._source = source
        self._metadata = metadata
        self._clock = clock
        self._queues = queues
        self._woken = asyncio.Event()
        self.status: dict[str, PullStatus] = {kind.name: PullStatus() for kind in KINDS}

    def wake(self) -> None:
        """Pull now rather than at the next round."""
        self._woken.set()

    async def run(self) -> None:
        """Pull for ever. Raises StoreFailed when a table cannot be written."""
        pause_s = FIRST_ROUND_S
        while True:
            await self._pause(pause_s)
            await self.pull_once()
            pause_s = ROUND_S

    async def pull_once(self) -> None:
        """Pull every table whose version differs, and wait until it is durable here."""
        self._woken.clear()
        held = await self._queues.ends() if self._queues is not None else {}
        for kind in KINDS:
            try:
                pulled = await self._pull(kind)
            except DittoError as error:
                self._note(kind.name, str(error))
                continue
            if pulled is None:
                continue
            try:
                await self._apply(kind, pulled)
            except Refused as error:
                self._note(kind.name, str(error))
                continue
            self.status[kind.name] = PullStatus(self._clock.monotonic())
            if kind is TOPICS and self._queues is not None:
                await self._empty_deleted(self._queues, held)

    def _note(self, table: str, problem: str) -> None:
        status = self.status[table]
        if not status.problem:
            log.warning("metadata_not_pulled", table=table, reason=problem)
        self.status[table] = replace(status, problem=problem)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _pull(self, kind: TableKind[R]) -> Table[R] | None:
        """The master's table; ours where that is the same version; None where the master's is older."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_exponential(multiplier=0.1),
            retry=retry_if_exception_type((OutOfReach, VersionChanged)),
            sleep=asyncio.sleep,
            reraise=True,
        )
        return await retrying(self._pull_pages, kind)

    async def _pull_pages(self, kind: TableKind[R]) -> Table[R] | None:
        held = self._metadata.table(kind)
        page = await self._source.fetch(kind, Ask(known=held.version), PAGE_DEADLINE_S)
        if page.not_modified:
            return held
        version, rows = page.version, list(page.rows)
        if not version.is_newer_than(held.version):
            self._note(kind.name, f"the master offers version {version}, older than {held.version}, which is held here; discarded")
            return None
        while page.next_token:
            page = await self._source.fetch(kind, Ask(page_token=page.next_token), PAGE_DEADLINE_S)
            if page.version != version:
                raise VersionChanged(kind.name)
            rows += page.rows
        return Table(version, sorted_rows(rows), held.other_fields)

    async def _apply(self, kind: TableKind[R], pulled: Table[R]) -> None:
        await self._metadata.change(kind, lambda held: pulled if pulled.version.is_newer_than(held.version) else held)

    async def _empty_deleted(self, queues: QueuesOfTopics, held: QueueEnds) -> None:
        """Empty what was held before the pull and has no topic after it: nothing is published to a topic that is not in the table.

        Done in each round, because a log that lags brings more of a deleted topic. A table that never held anything tells nothing.
        """
        topics = self._metadata.table(TOPICS)
        if topics == Table():
            return
        for topic, ends in held.items():
            if topic not in topics.rows and not is_reserved(topic):
                log.info("deleted_topic_emptied", topic=topic)
                await queues.empty(topic, ends)


async def take_tables(source: MetadataSource, metadata: Metadata, clock: Clock) -> None:
    """Take over every table of `source` that is newer than ours, durably; OutOfReach unless all could be asked for."""
    puller = MetadataPuller(source, metadata, clock, queues=None)
    await puller.pull_once()
    for table, status in puller.status.items():
        if status.problem:
            raise OutOfReach(f"the table of {table}", status.problem)
