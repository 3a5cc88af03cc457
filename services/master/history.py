"""The last changes of the group record, as this master noted them; kept in `dittomq/ha-history` over restarts and changes of roles."""

import json
from dataclasses import astuple
from typing import Final

import structlog

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.workers import Executor
from dittomq.wire.admin import HaChange

MOST_CHANGES: Final = 1_000
_NAME: Final = "ha-history"
_KIND: Final = b"HIST"

log = structlog.get_logger()

_Row = tuple[state_file.Number, state_file.Number, state_file.Number, str, tuple[str, ...], str, state_file.Number]


class HaHistory:
    """At most 1,000 changes, oldest first. A full disk keeps them from the file, not from operators."""

    def __init__(self, storage: Storage, lane: Executor) -> None:
        """`lane` writes side files, one after the other."""
        self._storage = storage
        self._lane = lane
        self._changes: tuple[HaChange, ...] = ()

    @property
    def changes(self) -> tuple[HaChange, ...]:
        """Oldest first."""
        return self._changes

    async def load(self) -> None:
        """Take up what was written down."""
        self._changes = await self._lane.call(lambda: _load(self._storage))

    async def add(self, change: HaChange) -> None:
        """Durable when this returns, unless the disk is full. Raises StorageFailure."""
        self._changes = (*self._changes, change)[-MOST_CHANGES:]
        payload = json.dumps([astuple(each) for each in self._changes]).encode()
        await self._lane.call(lambda: state_file.save_if_room(self._storage, _NAME, _KIND, payload))


def _load(storage: Storage) -> tuple[HaChange, ...]:
    try:
        rows = state_file.load_json(storage, _NAME, _KIND, list[_Row])
    except state_file.CorruptStateFile as damage:
        log.warning("ha_history_lost", problem=str(damage))
        return ()
    return tuple(HaChange(*row) for row in rows or ())
