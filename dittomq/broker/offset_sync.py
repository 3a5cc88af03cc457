"""A slave's copy of its master's consumer offsets: the changes since the version it holds, and only after a gap the whole table."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dittomq.errors import StaleEpoch, VersionConflict
from dittomq.metadata.formats import CONSUMER_OFFSETS
from dittomq.metadata.offset_table import Name, NameOffsets, OffsetPage, OffsetTable, add_rows
from dittomq.metadata.tables import Ask
from dittomq.routes import DataVersion

PAGE_DEADLINE_S = 30.0
PAGE_ROWS = 4_000
"""So many take the master's loop some 30 ms, and that of the slave 20; other calls wait meanwhile."""


@dataclass(frozen=True, slots=True)
class OffsetsPulled:
    """What the master answered to who held `held`: `changes`, or all of `version` by name; None of both: it has that version too."""

    held: DataVersion
    version: DataVersion
    changes: tuple[OffsetPage, ...] = ()
    by_name: dict[Name, NameOffsets] | None = None


class OffsetPuller:
    """Follows the master's offsets; what it pulls is taken at once, so that every reader sees one version."""

    def __init__(self, fetch: Callable[[Ask, float], Awaitable[OffsetPage]], table: OffsetTable) -> None:
        self._fetch = fetch
        self._table = table

    async def pull(self) -> OffsetsPulled:
        """Ask the master.

        Raises what the call raises, VersionConflict where the table moved on too far meanwhile, and StaleEpoch where the master's version
        is older than ours: it is discarded.
        """
        held = self._table.version
        page = await self._ask(Ask(known=held, page_size=PAGE_ROWS))
        if page.not_modified:
            return OffsetsPulled(held, held)
        if not page.version.is_newer_than(held) and not page.version.state_version == held.state_version == page.led:
            raise StaleEpoch(page.version.state_version, held.state_version)
        if page.is_delta:
            return OffsetsPulled(held, *await self._changes(page))
        version, by_name = page.version, dict[Name, NameOffsets]()
        add_rows(by_name, page.rows)
        while page.next_token:
            page = await self._ask(Ask(page_token=page.next_token, page_size=PAGE_ROWS))
            if page.version != version:
                raise VersionConflict(CONSUMER_OFFSETS.name)
            add_rows(by_name, page.rows)
        return OffsetsPulled(held, version, by_name=by_name)

    def take(self, pulled: OffsetsPulled) -> None:
        """Let it be our version, unless ours has become another one meanwhile."""
        if self._table.version != pulled.held:
            return
        if pulled.by_name is not None:
            self._table.load(pulled.by_name, pulled.version)
        for page in pulled.changes:
            self._table.apply(page.rows, page.removed, page.version)

    async def _changes(self, page: OffsetPage) -> tuple[DataVersion, tuple[OffsetPage, ...]]:
        parts = [page]
        while page.has_more:
            page = await self._ask(Ask(known=page.version, page_size=PAGE_ROWS))
            if not page.is_delta:
                raise VersionConflict(CONSUMER_OFFSETS.name)
            parts.append(page)
        return page.version, tuple(parts)

    async def _ask(self, ask: Ask) -> OffsetPage:
        return await self._fetch(ask, PAGE_DEADLINE_S)
