"""How a master opens its epoch: what is on its disk before it takes the first message, and what it adds to its topics then."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from dittomq.broker.writer import Writer, WriterLanes, WriterLimits
from dittomq.epoch_history import EpochEntry, newest_epoch, truncate_history
from dittomq.errors import DiskFull
from dittomq.ha_status import Wait, WaitKind
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig, with_held
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.confirmed_offset import ConfirmedOffset
from services.master.config import FlushMode, confirm_rules
from services.master.parts import MasterParts
from services.master.term import Opened, Term

_ROOM_S: Final = 1.0
_EPOCH: Final = Wait(WaitKind.EPOCH, "its epoch to be opened")

R = TypeVar("R")

log = structlog.get_logger()


def epoch_to_open(parts: MasterParts) -> Epoch:
    """The one that the election was won in; without a record the next one that this store does not know."""
    store = parts.store
    if parts.elected is not None:
        return parts.elected.record.epoch
    return Epoch(1 + max(newest_epoch(store.epoch_history), store.adopted_epoch, store.promised_epoch))


def why_not_to_lead(parts: MasterParts) -> str:
    """Why the election that this master won says nothing of this store; "" where it may open its epoch."""
    store, elected = parts.store, parts.elected
    if elected is None:
        return ""
    if elected.record.master != store.replica:
        return f"the group record names {elected.record.master}, and its store is {store.replica} now"
    if store.end != elected.log_end:
        return f"its log ends at {store.end:,}, and was elected with an end of {elected.log_end:,}"
    if store.promised_epoch != elected.record.epoch:
        return f"it was elected in epoch {elected.record.epoch}, and has promised epoch {store.promised_epoch}"
    return ""


class Opening:
    """One opening. `wait` is what it waits for until the epoch is open."""

    def __init__(self, parts: MasterParts) -> None:
        self._parts = parts
        self.promising = asyncio.Lock()  # no promise is given while the epoch is written down, nor the other way round
        self.wait = _EPOCH

    async def run(self) -> Term | None:
        """Open the epoch, durably. On a full disk it waits for room. None: it has promised a higher epoch, or is not what was elected."""
        parts = self._parts
        store, lane, config = parts.store, parts.lanes.store, parts.loaded.value
        await self._reserve_offsets()
        epoch = epoch_to_open(parts)
        entry = EpochEntry(epoch, config.node.broker_id, parts.chance.getrandbits(64), store.end)
        epoch_history = (*truncate_history(store.epoch_history, store.end), entry)

        async def open_it() -> str:
            async with self.promising:
                if why := why_not_to_lead(parts):
                    return why
                await lane.call(lambda: store.replace_epoch_history(epoch_history))
                await lane.call(lambda: store.adopt_epoch(epoch))
            return ""

        if why := await self.when_there_is_room(open_it):
            self._log_refusal(epoch, why)
            return None
        held = await lane.call(store.minimums)
        await self.when_there_is_room(lambda: parts.metadata.lead(epoch, held))
        await parts.offsets.clamp(epoch)
        minimums = parts.metadata.table(TOPICS).minimums
        await self.when_there_is_room(lambda: lane.call(lambda: store.hide(minimums)))
        async with self.promising:  # while it waited for room it may have promised a higher epoch
            if why := why_not_to_lead(parts):
                self._log_refusal(epoch, why)
                return None
            return self._make_term(self._opened(epoch, epoch_history))

    def _log_refusal(self, epoch: Epoch, why: str) -> None:
        """This node opens no epoch, and goes on as a slave."""
        log.warning("epoch_not_opened", node=self._parts.loaded.value.name, epoch=epoch, reason=why)

    def _opened(self, epoch: Epoch, epoch_history: tuple[EpochEntry, ...]) -> Opened:
        """The epoch is open, durably: what its first message will follow."""
        parts, store = self._parts, self._parts.store
        elected, name = parts.elected, parts.loaded.value.name
        birth, data_loss = ("", None) if elected is None else (elected.record.birth, elected.data_loss)
        if data_loss:
            silent = () if elected is None else elected.silent
            log.warning("data_loss_possible", node=name, epoch=epoch, data_loss=str(data_loss), kind=data_loss.kind, silent=silent)
        log.info("epoch_opened", node=name, epoch=epoch, start=store.end)
        return Opened(epoch, store.end, epoch_history, name, birth, data_loss)

    async def when_there_is_room(self, write: Callable[[], Awaitable[R]]) -> R:
        """Write, as soon as the disk takes it: a full one keeps a master from leading, not from serving what it has."""
        while True:
            try:
                written = await write()
            except DiskFull as full:
                self.wait = Wait(WaitKind.DISK_ROOM, f"room on its disk: {full}")
                await asyncio.sleep(_ROOM_S)
            else:
                self.wait = _EPOCH
                return written

    async def _reserve_offsets(self) -> None:
        """Leave out the numbers that messages in damaged bytes may have."""
        parts = self._parts
        store, rows, node = parts.store, parts.metadata.table(TOPICS).rows, parts.loaded.value.node
        queues = [(topic.name, queue) for topic in rows.values() for queue in range(max(topic.read_queues, topic.write_queues))]
        unread = store.unread
        reserved = self.when_there_is_room(lambda: parts.lanes.store.call(lambda: store.reserve_offsets(queues, node.broker_id)))
        if offsets := await reserved:
            name = parts.loaded.value.name
            log.warning("queue_offsets_left_out", node=name, damaged_bytes=unread.total_bytes, offsets_of_each_queue=offsets)

    def _make_term(self, opened: Opened) -> Term:
        parts = self._parts
        config, store, elected = parts.loaded.value, parts.store, parts.elected
        known = store.confirmed_at_start if elected is None else max(store.confirmed_at_start, elected.confirmed)
        confirm = ConfirmedOffset(
            confirm_rules(config),
            own=store.replica,
            node=config.name,
            record=None if elected is None else elected.record,
            end=opened.start,
            confirmed=PhysicalOffset(min(known, opened.start)),
            now=parts.clock.monotonic(),
        )
        lanes, syncs = WriterLanes(parts.lanes.store, parts.lanes.sync), config.replication.flush_mode is FlushMode.SYNC_FLUSH
        writer = Writer(store, lanes, parts.clock, WriterLimits(), sync_each_group=syncs)
        term = Term(opened, confirm, writer, parts.dispatcher, clock=parts.clock)
        term.damage = lambda: store.known_damage.ranges
        term.know_damage()
        return term


async def add_topics_of_the_log(parts: MasterParts, opening: Opening, term: Term) -> None:
    """Add to the topics what the log holds messages of: who was elected may not know them, and no other node tells."""
    await parts.dispatcher.wait_applied(term.opened.start)
    queues, minimums = parts.store.queues_with_messages(), await parts.lanes.store.call(parts.store.minimums)

    def known(table: Table[TopicConfig]) -> Table[TopicConfig]:
        rows = with_held(table.rows, queues)
        if rows == dict(table.rows):
            return table
        return table.changed(rows.values(), term.opened.epoch, parts.clock.wall_ms()).hiding(minimums)

    await opening.when_there_is_room(lambda: parts.metadata.change(TOPICS, known))
