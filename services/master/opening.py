"""How a master opens its epoch: what is on its disk before it takes the first message, and what it adds to its topics then."""

import structlog

from dittomq.broker.role import succession_of
from dittomq.broker.writer import Writer, WriterLanes, WriterLimits
from dittomq.lineage import LineageEntry, cut_lineage
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig, with_held
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm import Confirm
from dittomq.replication.leadership_decisions import Lead
from services.master.config import FlushMode, confirm_rules
from services.master.counting import count_messages
from services.master.degraded import load_degraded
from services.master.parts import NodeParts
from services.master.term import Opened, Term

log = structlog.get_logger()


async def open_epoch(parts: NodeParts, decision: Lead) -> Term:
    """Open the epoch, durably, and stamp this boot: from here on the log is whole. On a full disk it waits for room."""
    store, lane, config, room = parts.store, parts.store_lane, parts.loaded.value, parts.recovery.when_there_is_room
    await _leap(parts)
    entry = LineageEntry(decision.epoch, config.node.broker_id, parts.chance.getrandbits(64), store.end)
    lineage = (*cut_lineage(store.lineage, store.end), entry)
    await room(lambda: lane.call(lambda: store.adopt_lineage(lineage)))
    await lane.call(store.stamp_boot)
    degraded = await lane.call(lambda: load_degraded(parts.storage, store.end, lambda start, end: count_messages(store, start, end)))
    held = await lane.call(store.minimums)
    await room(lambda: parts.metadata.lead(decision.epoch, held))
    minimums = parts.metadata.table(TOPICS).minimums
    await room(lambda: lane.call(lambda: store.hide(minimums)))
    if decision.accepted_loss:
        log.warning("loss_accepted", node=config.name, epoch=decision.epoch, may_be_lost=decision.accepted_loss)
    log.info("epoch_opened", node=config.name, epoch=decision.epoch, start=store.end)
    by_word, came = bool(decision.accepted_loss), succession_of(parts.grant)
    return _make_term(parts, Opened(decision.epoch, store.end, lineage, degraded, by_word, config.name, came))


async def know_what_the_log_holds(parts: NodeParts, term: Term) -> None:
    """Add to the topics what the log holds messages of: who was promoted may not have heard of them, and nobody else tells any more."""
    pulse = parts.dispatcher.pulse()
    while parts.dispatcher.applied < term.opened.start:
        await pulse.wait()
        pulse = parts.dispatcher.pulse()
    queues, minimums = parts.store.queues_with_messages(), await parts.store_lane.call(parts.store.minimums)

    def known(table: Table[TopicConfig]) -> Table[TopicConfig]:
        rows = with_held(table.rows, queues)
        if rows == dict(table.rows):
            return table
        return table.changed(rows.values(), term.opened.epoch, parts.clock.wall_ms()).hiding(minimums)

    await parts.recovery.when_there_is_room(lambda: parts.metadata.change(TOPICS, known))


async def _leap(parts: NodeParts) -> None:
    """Leave out the numbers that messages in damaged bytes may have, if this master is to lead without these."""
    store, rows, node = parts.store, parts.metadata.table(TOPICS).rows, parts.loaded.value.node
    queues = [(topic.name, queue) for topic in rows.values() for queue in range(max(topic.read_queues, topic.write_queues))]
    unread = store.unread
    leap = parts.recovery.when_there_is_room(lambda: parts.store_lane.call(lambda: store.leap(queues, node.broker_id)))
    if offsets := await leap:
        name = parts.loaded.value.name
        log.warning("numbers_left_out", node=name, damaged_bytes=unread.total_bytes, offsets_of_each_queue=offsets)


def _make_term(parts: NodeParts, opened: Opened) -> Term:
    table, store = parts.loaded.value.replication, parts.store
    confirmed = PhysicalOffset(min(max(store.confirmed_at_start, parts.recovery.confirmed), opened.start))
    rules, now = confirm_rules(table), parts.clock.monotonic()
    confirm = Confirm(rules, end=opened.start, confirmed=confirmed, members=store.in_sync_at_start, now=now)
    lanes, syncs = WriterLanes(parts.store_lane, parts.sync_lane), table.flush_mode is FlushMode.SYNC_FLUSH
    writer = Writer(store, lanes, parts.clock, WriterLimits(), sync_each_group=syncs)
    term = Term(opened, confirm, writer, parts.dispatcher, parts.clock)
    term.damage = lambda: store.known_damage.ranges
    term.know_damage()
    return term
