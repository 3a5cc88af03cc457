"""⑨ Pins: while an audit reads, retention holds the log for it, up to a lease. Kept over restarts in `dittomq/pins`.

Leases are counted by the monotonic clock, and a restart, which knows nothing of it, begins each of them anew: an auditor that
lives finds its pin again, one that died costs a lease more. What a pin holds goes nevertheless when the disk is fuller than
`retention.forced_used_percent`; the pin has ended then, and says so to whoever renews it or gives it up.
"""

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.retention import RetentionFloor
from dittomq.copies import MAX_LEASE_S, Pin
from dittomq.doors.chance import hex_id
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import DiskFull, LimitReached, OffsetOutOfRange, SessionExpired
from dittomq.ha_status import PinView
from dittomq.offsets import PhysicalOffset

MAX_PINS: Final = 16
_NAME: Final = "pins"
_KIND: Final = b"PINS"

log = structlog.get_logger()


class PinnedStore(Protocol):
    """The part of a store that is held."""

    @property
    def min_offset(self) -> PhysicalOffset: ...

    @property
    def end(self) -> PhysicalOffset: ...


@dataclass(frozen=True, slots=True)
class PinParts:
    """What pins need. `lane` writes side files, one after the other."""

    node: str
    storage: Storage
    store: PinnedStore
    lane: Executor
    clock: Clock
    chance: random.Random


@dataclass(frozen=True, slots=True)
class _ActivePin:
    """A pin while it lasts. `until_s` is the monotonic clock's."""

    run: str
    start: PhysicalOffset
    lease_s: float
    until_s: float


class Pins:
    """Up to 16 pins of one node; who asks for another one gets LimitReached.

    Whoever drops keeps `still` from asking for the holds until the drop is done, so a pin that was granted is never overlooked.
    """

    def __init__(self, parts: PinParts) -> None:
        self._parts = parts
        self._held: dict[str, _ActivePin] = {}
        self._written: dict[str, list[object]] = {}
        self.still = asyncio.Lock()

    async def load(self) -> None:
        """Take up what was written down; each lease begins anew."""
        found = await self._parts.lane.call(self._load)
        now_s = self._parts.clock.monotonic()
        self._held = {
            pin_id: _ActivePin(run, PhysicalOffset(start), lease_s, now_s + min(lease_s, MAX_LEASE_S))
            for pin_id, (run, start, lease_s) in found.items()
        }
        self._written = _rows(self._held)

    async def pin(self, run: str, start: PhysicalOffset | None, lease_s: float) -> Pin:
        """Durably hold the log from `start` on, or all of it. Raises OffsetOutOfRange, LimitReached, DiskFull."""
        async with self.still:
            store, held = self._parts.store, self._lasting()
            if len(held) >= MAX_PINS:
                raise LimitReached(f"the list of audit pins of {self._parts.node}", MAX_PINS)
            low = store.min_offset if start is None else start
            if not store.min_offset <= low <= store.end:
                raise OffsetOutOfRange("byte", low, store.min_offset, store.end)
            pin_id = hex_id(self._parts.chance)
            await self._persist_pins({**held, pin_id: self._lease(run, low, lease_s)})
            log.info("log_pinned", node=self._parts.node, run=run, pin=pin_id, start=low, lease_s=lease_s)
            return Pin(pin_id, low)

    async def renew(self, pin_id: str, lease_s: float) -> Pin:
        """Let the lease begin anew. Raises SessionExpired when the pin has ended, or never was, DiskFull for another length of lease."""
        async with self.still:
            held = self._lasting()
            if pin_id not in held:
                raise SessionExpired(f"pin {pin_id} of {self._parts.node}")
            found = held[pin_id]
            renewed = {**held, pin_id: self._lease(found.run, found.start, lease_s)}
            if found.lease_s == lease_s:
                self._held = renewed  # what is written down says nothing of when leases end
            else:
                await self._persist_pins(renewed)
            return Pin(pin_id, found.start)

    async def unpin(self, pin_id: str) -> bool:
        """Give a pin up; whether it had held until now. Durably, but on a full disk a restart may let it hold for one lease more."""
        async with self.still:
            held = self._lasting()
            found = held.pop(pin_id, None)
            await self._let_go(held)
            return found is not None

    async def remove_ended(self) -> None:
        """Forget pins that have ended, durably as soon as the disk has room for that."""
        async with self.still:
            held = self._lasting()
            for pin_id, gone in self._held.items():
                if pin_id not in held:
                    log.warning("pin_ended", node=self._parts.node, run=gone.run, pin=pin_id)
            await self._let_go(held)

    def views(self) -> tuple[PinView, ...]:
        """For people; leases end by the monotonic clock, so `until_ms` is a guess when the wall clock is set."""
        wall_ms, now_s = self._parts.clock.wall_ms(), self._parts.clock.monotonic()
        return tuple(PinView(held.run, held.start, wall_ms + int((held.until_s - now_s) * 1000)) for held in self._lasting().values())

    def floors(self, now_ms: int) -> list[RetentionFloor]:
        """What retention must leave; `now_ms` is the time by the clock that it goes by."""
        now_s = self._parts.clock.monotonic()
        return [
            RetentionFloor(f"audit {held.run} {pin_id}", held.start, until_ms=now_ms + int((held.until_s - now_s) * 1000))
            for pin_id, held in self._lasting().items()
        ]

    def _lease(self, run: str, start: PhysicalOffset, lease_s: float) -> _ActivePin:
        return _ActivePin(run, start, lease_s, self._parts.clock.monotonic() + lease_s)

    def _lasting(self) -> dict[str, _ActivePin]:
        """Pins whose lease is not over and of which nothing was dropped."""
        now_s, low = self._parts.clock.monotonic(), self._parts.store.min_offset
        return {pin_id: held for pin_id, held in self._held.items() if now_s < held.until_s and low <= held.start}

    async def _persist_pins(self, wanted: Mapping[str, _ActivePin]) -> None:
        """Let these be the pins, durably; DiskFull when the disk has no room for that."""
        if not await self._wrote(wanted):
            raise DiskFull(self._parts.node, await self._parts.lane.call(self._parts.storage.free_bytes), state_file.ROOM_BYTES)
        self._held = dict(wanted)

    async def _let_go(self, left: Mapping[str, _ActivePin]) -> None:
        """Let only these of the pins be left."""
        self._held = dict(left)
        await self._wrote(left)

    async def _wrote(self, wanted: Mapping[str, _ActivePin]) -> bool:
        """Whether these are the pins on the disk now; not when there is no room."""
        rows = _rows(wanted)
        if rows != self._written:
            payload = json.dumps(rows, sort_keys=True).encode()
            if not await self._parts.lane.call(lambda: state_file.save_if_room(self._parts.storage, _NAME, _KIND, payload)):
                return False
            self._written = rows
        return True

    def _load(self) -> dict[str, tuple[str, int, float]]:
        try:
            found = state_file.load_json(self._parts.storage, _NAME, _KIND, dict[str, tuple[str, state_file.Number, float]])
        except state_file.CorruptStateFile as damage:
            log.warning("retention_pins_lost", node=self._parts.node, problem=str(damage))
            return {}
        return found or {}


def _rows(held: Mapping[str, _ActivePin]) -> dict[str, list[object]]:
    return {pin_id: [each.run, each.start, each.lease_s] for pin_id, each in held.items()}
