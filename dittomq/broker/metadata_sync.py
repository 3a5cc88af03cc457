"""A slave's copy of its master's tables: pulled at one version, swapped whole, never back to another epoch.

The first round comes 3 s after the start, the next ones every 10 s, and at once when woken, as by the master's watch stream, but not
twice in a second. The tables
are pulled at once and each by itself: one that fails is logged and tried again in the next round, and keeps no other of its own
round waiting. A round ends with its last table.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from dittomq.broker.metadata import Metadata
from dittomq.broker.offset_sync import OffsetPuller
from dittomq.doors.clock import Clock
from dittomq.errors import DiskFull, DittoError, Refused, StorageFailure, Unavailable, VersionConflict, first_of
from dittomq.metadata.formats import CONSUMER_OFFSETS, KINDS, TOPICS, WHOLE_KINDS, TableKind
from dittomq.metadata.offset_table import OffsetPage
from dittomq.metadata.tables import Ask, QueueMinimums, R, Table, TablePage, sorted_rows
from dittomq.routes import DataVersion

FIRST_ROUND_S = 3.0
ROUND_S = 10.0
SHORTEST_ROUND_S = 1.0
PAGE_DEADLINE_S = 30.0
_ATTEMPTS = 3  # a table that moves on between its pages, or a call that broke, is tried so often in a round
_TRIES_S = 20.0  # a try that fails later than this is the last one: a node that is silent for a whole deadline will be so again
_TIMEOUT_S = 2.0
_WATCH_AGAIN_S = 2.0  # a watch that ended is opened again

T = TypeVar("T")

log = structlog.get_logger()


class MetadataSource(Protocol):
    """The master, as a slave asks it for tables."""

    async def fetch(self, kind: TableKind[R], ask: Ask, deadline_s: float) -> TablePage[R]:
        """One page, or a DittoError within `deadline_s`: Unavailable without an answer, VersionConflict for a token of an older version."""
        ...

    async def fetch_offsets(self, ask: Ask, deadline_s: float) -> OffsetPage:
        """The same of consumer offsets: what has changed since the version that is known, or a page."""
        ...

    def watch_versions(self) -> AsyncIterator[Mapping[str, DataVersion]]:
        """Versions by the name of the table's kind, at once and at each change; a DittoError when it ends or is silent."""
        ...


@dataclass(frozen=True, slots=True)
class TablePullStatus:
    """What became of the pulls of one table. `last_success_s`: monotonic time, None before the first; `problem` empty after a success."""

    last_success_s: float | None = None
    problem: str = ""
    kind: type[DittoError | str] | None = None


class MetadataPuller:
    """Follows the master's tables, and hides what the queues of deleted topics held.

    A master may answer with an older version than the one held here (it was restored, or it is not the newest master): it is discarded.
    Versions of one epoch have no order where two masters opened it out of each other's reach: the one that leads in it has the last word.
    `hide` durably tells this node's store where queues begin: before a table is seen here whose topics were deleted and made again, and
    once in each round, because a log that was cut has forgotten a part of it. `show_again` is told where they begin as a master that leads
    knows it: a deletion that this node heard of and that one never did counts no more.
    """

    def __init__(
        self,
        source: MetadataSource,
        metadata: Metadata,
        clock: Clock,
        hide: Callable[[QueueMinimums], Awaitable[None]],
        *,
        show_again: Callable[[QueueMinimums], Awaitable[None]] | None = None,
    ) -> None:
        self._source = source
        self._metadata = metadata
        self._offsets = OffsetPuller(source.fetch_offsets, metadata.offsets)
        self._clock = clock
        self._hide = hide
        self._show_again = show_again
        self._topics_led: DataVersion | None = None  # the version of the topics of a master that leads, as it told last
        self._woken = asyncio.Event()
        self._next_topics = asyncio.Event()  # set when the topics of the next round have been asked for
        self.status: dict[str, TablePullStatus] = {kind.name: TablePullStatus() for kind in KINDS}

    def topics_at(self, version: DataVersion) -> None:
        """The master's topics have this version: pull now rather than at the next round when it may take the place of ours."""
        held = self._metadata.table(TOPICS).version
        if version.is_newer_than(held) or (version != held and version.state_version == held.state_version):
            self._woken.set()

    async def newer_topics(self) -> None:
        """Ask the master for its topics now, once for all who wait; returns when they are here, or after 2 s at most."""
        self._woken.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S):
                await self._next_topics.wait()

    @property
    def topics_age_s(self) -> float | None:
        """How long ago the topics were those of the master; None when they were not since this node started."""
        pulled_s = self.status[TOPICS.name].last_success_s
        return None if pulled_s is None else self._clock.monotonic() - pulled_s

    async def run(self) -> None:
        """Pull for ever. Raises StorageFailure when a table cannot be written."""
        failed: DittoError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pull_rounds(), name="pull rounds")
                tasks.create_task(self._watch(), name="watch of versions")
        except* StorageFailure as problems:
            failed = first_of(problems)
        if failed is not None:
            raise failed

    async def _watch(self) -> NoReturn:
        """Wake the rounds when the master's tables have other versions than ours."""
        await asyncio.sleep(FIRST_ROUND_S)
        while True:
            with contextlib.suppress(DittoError):
                async for versions in self._source.watch_versions():
                    self._compare(versions)
            await asyncio.sleep(_WATCH_AGAIN_S)

    def _compare(self, versions: Mapping[str, DataVersion]) -> None:
        if any(self._metadata.version(kind) != versions[kind.name] for kind in KINDS):
            self._woken.set()

    async def _pull_rounds(self) -> NoReturn:
        pause_s, is_hidden = FIRST_ROUND_S, False
        while True:
            is_hidden = is_hidden or await self._hide_own()
            await self._back_off(pause_s)
            await self.pull_once()
            await asyncio.sleep(SHORTEST_ROUND_S)
            pause_s = ROUND_S - SHORTEST_ROUND_S

    async def pull_once(self) -> None:
        """Pull every table whose version differs, and wait until it is durable here. Raises StorageFailure."""
        self._woken.clear()
        topics_asked, self._next_topics = self._next_topics, asyncio.Event()
        failed: DittoError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                pulling = {kind.name: tasks.create_task(self._pull_table(kind)) for kind in WHOLE_KINDS}
                tasks.create_task(self._pull_offsets())
                pulling[TOPICS.name].add_done_callback(lambda _: topics_asked.set())
        except* StorageFailure as problems:
            failed = first_of(problems)
        if failed is not None:
            raise failed

    async def take_all(self) -> None:
        """Take over every table that is newer than ours, durably.

        They are asked for at once: a master that has promised answers for a moment only. Raises Unavailable unless all could be asked for,
        within 30 s of a silence; DiskFull, StorageFailure.
        """
        failed: DittoError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for kind in KINDS:
                    tasks.create_task(self._take(kind))
        except* StorageFailure as problems:
            failed = first_of(problems)
        except* DittoError as problems:
            failed = failed or first_of(problems)
        if failed is not None:
            raise failed

    async def _take(self, kind: TableKind[Any]) -> None:
        try:
            if kind is CONSUMER_OFFSETS:
                await self._retrying(self._offsets.pull_and_take)
                return
            pulled = await self._retrying(partial(self._pull_pages, kind))
        except DittoError as error:
            raise Unavailable(f"the table of {kind.name}", str(error)) from error
        if pulled is not None:
            await self._apply(kind, *pulled)

    async def _pull_offsets(self) -> None:
        name = CONSUMER_OFFSETS.name
        try:
            await self._retrying(self._offsets.pull_and_take)
        except DittoError as error:
            self._record_problem(name, error)
        else:
            self.status[name] = TablePullStatus(self._clock.monotonic())

    async def _hide_own(self) -> bool:
        """What is known here since before; whether the disk had room to write that down."""
        try:
            await self._hide(self._metadata.table(TOPICS).minimums)
        except DiskFull as full:
            self._record_problem(TOPICS.name, full)
            return False
        return True

    async def _pull_table(self, kind: TableKind[R]) -> None:
        try:
            pulled = await self._retrying(partial(self._pull_pages, kind))
        except DittoError as error:
            self._record_problem(kind.name, error)
            return
        if pulled is None:
            return
        try:
            await self._apply(kind, *pulled)
            topics = self._metadata.table(TOPICS)
            if kind is TOPICS and topics.version == self._topics_led and self._show_again is not None:
                await self._show_again(topics.minimums)
        except Refused as error:
            self._record_problem(kind.name, error)
            return
        self.status[kind.name] = TablePullStatus(self._clock.monotonic())

    def _record_problem(self, table: str, problem: DittoError | str) -> None:
        """Log it once for each kind: its figures may change with every round."""
        status = self.status[table]
        if status.kind is not type(problem):
            log.warning("metadata_not_pulled", table=table, reason=str(problem))
        self.status[table] = replace(status, problem=str(problem), kind=type(problem))

    async def _back_off(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _retrying(self, pull: Callable[[], Awaitable[T]]) -> T:
        """What `pull` returns, or raises after some tries."""
        until = self._clock.monotonic() + _TRIES_S
        retrying = AsyncRetrying(
            stop=lambda state: state.attempt_number >= _ATTEMPTS or self._clock.monotonic() >= until,
            wait=wait_exponential(multiplier=0.1),
            retry=retry_if_exception_type((Unavailable, VersionConflict)),
            sleep=asyncio.sleep,
            reraise=True,
        )
        return await retrying(pull)

    async def _pull_pages(self, kind: TableKind[R]) -> tuple[Table[R], Table[R]] | None:
        """Our table and the master's, which is ours where that is the same version; None where the master's is older."""
        held = self._metadata.table(kind)
        page = await self._source.fetch(kind, Ask(known=held.version), PAGE_DEADLINE_S)
        if kind is TOPICS:
            self._topics_led = page.version if page.led and page.led == page.version.state_version else None
        if page.not_modified:
            return held, held
        version = page.version
        if not version.is_newer_than(held.version) and not version.state_version == held.version.state_version == page.led:
            self._record_problem(
                kind.name, f"the master offers version {version}, older than {held.version}, which is held here; discarded"
            )
            return None
        if page.is_delta:
            return held, held.following(page)
        rows, minimums = _as_held(held, page.rows), dict(page.minimums)
        while page.next_token:
            page = await self._source.fetch(kind, Ask(page_token=page.next_token), PAGE_DEADLINE_S)
            if page.version != version:
                raise VersionConflict(kind.name)
            rows += _as_held(held, page.rows)
            minimums |= page.minimums
        return held, Table(version, sorted_rows(rows), held.other_fields, minimums)

    async def _apply(self, kind: TableKind[R], held: Table[R], pulled: Table[R]) -> None:
        """Take it over in place of what was held when it was asked for; of two pulls at once the newer one stays."""
        if pulled.minimums:
            await self._hide(pulled.minimums)
        await self._metadata.change(kind, lambda now: pulled if now is held or pulled.version.is_newer_than(now.version) else now)


def _as_held(held: Table[R], rows: Sequence[R]) -> list[R]:
    """Those that are held already are the same objects: of a large table only the others are encoded, and told to nameservers."""
    known = [held.rows.get(row.key) for row in rows]
    return [row if before is None or before != row else before for row, before in zip(rows, known, strict=True)]


async def take_tables(source: MetadataSource, metadata: Metadata, clock: Clock) -> None:
    """Take over every table of `source` that is newer than ours, durably; Unavailable unless all could be asked for, DiskFull."""
    await MetadataPuller(source, metadata, clock, _leave_to_the_term).take_all()


async def _leave_to_the_term(_: QueueMinimums) -> None:
    """A recovering master hides what its tables say when it opens its epoch: its log is not there yet."""
