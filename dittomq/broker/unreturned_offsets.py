"""Offsets that a slave took while its master was away: kept apart from the master's table, until a master has them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, NoReturn

import structlog

from dittomq.broker.config_files import ConfigFiles
from dittomq.doors.workers import Executor
from dittomq.errors import DiskFull, DittoError, InvalidField
from dittomq.metadata.formats import CONSUMER_OFFSETS, TableKind
from dittomq.metadata.offset_table import Committed
from dittomq.metadata.rows import ConsumerOffset
from dittomq.metadata.tables import MAX_PAGE_ROWS, Table, sorted_rows

UNRETURNED: Final[TableKind[ConsumerOffset]] = replace(
    CONSUMER_OFFSETS, name="consumer offsets to be returned", path="config/dittomqUnreturnedOffset.json"
)
_RETURN_S: Final = 1.0

log = structlog.get_logger()

ReturnOffsets = Callable[[Sequence[ConsumerOffset]], Awaitable[tuple[int, int]]]
"""Gives rows to the master; tells how many it took, and how many it dropped."""


class UnreturnedOffsets:
    """The newest row of each queue. The file is written with the other offsets."""

    def __init__(self, files: ConfigFiles, lane: Executor) -> None:
        self._files = files
        self._lane = lane
        self._rows: dict[tuple[str, str, int], ConsumerOffset] = {}
        self._is_saved = True

    async def load(self) -> None:
        """Take what an earlier service has left. Raises StoreOpenFailed."""
        table, _ = await self._lane.call(lambda: self._files.load(UNRETURNED))
        self._rows = dict(table.rows)

    @property
    def rows(self) -> tuple[ConsumerOffset, ...]:
        """All of them."""
        return tuple(self._rows.values())

    def get(self, topic: str, group: str, queue: int, incarnation: int) -> Committed | None:
        """What that incarnation of the group committed here; None for nothing."""
        row = self._rows.get((topic, group, queue))
        return None if row is None or row.incarnation != incarnation else Committed(row.offset, row.resets)

    def put(self, rows: Sequence[ConsumerOffset]) -> None:
        """Keep those that are newer."""
        for row in rows:
            held = self.get(row.topic, row.group, row.queue, row.incarnation)
            if held is None or (row.resets, row.offset) > held.order:
                self._rows[row.key] = row
                self._is_saved = False

    def drop(self, rows: Sequence[ConsumerOffset]) -> None:
        """A master has these; what was committed since stays."""
        for row in rows:
            if self._rows.get(row.key) is row:
                del self._rows[row.key]
                self._is_saved = False

    async def save(self) -> None:
        """Durably write them, if they have changed. With a full disk it is tried again later; raises StorageFailure."""
        if self._is_saved:
            return
        self._is_saved = True
        table = Table(rows=sorted_rows(self._rows.values()))
        try:
            await self._lane.run(self._files.save(UNRETURNED, table))
        except DiskFull:
            self._is_saved = False

    async def return_them(self, master_is_gone: Callable[[], bool], give: ReturnOffsets) -> NoReturn:
        """Give them to the master, when it is back, until cancelled."""
        while True:
            await asyncio.sleep(_RETURN_S)
            some = self.rows[:MAX_PAGE_ROWS]
            if not some or master_is_gone():
                continue
            try:
                taken, dropped = await _give(some, give)
            except DittoError:
                continue
            log.info("consumer_offsets_returned", offsets=len(some), taken=taken, dropped=dropped)
            self.drop(some)
            await self.save()


async def _give(rows: Sequence[ConsumerOffset], give: ReturnOffsets) -> tuple[int, int]:
    """Where one of them cannot be taken, each by itself: the others do not wait for that one, which is dropped."""
    try:
        return await give(rows)
    except InvalidField as refused:
        if len(rows) == 1:
            log.warning("consumer_offset_not_returned", topic=rows[0].topic, group=rows[0].group, queue=rows[0].queue, reason=str(refused))
            return 0, 1
    counts = [await _give([row], give) for row in rows]
    return sum(taken for taken, _ in counts), sum(dropped for _, dropped in counts)
