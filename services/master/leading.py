"""A master from its recovery on: it comes to lead, or follows another one, and does what a leading master does all the time."""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from dittomq.broker import degraded_file, holds_file
from dittomq.broker.mending import Mender
from dittomq.broker.metadata_sync import take_tables
from dittomq.broker.remote_ranges import RemoteRanges
from dittomq.broker.writer import WriterEvents
from dittomq.errors import OutOfReach, Refused
from dittomq.offsets import Epoch
from dittomq.replication.leadership_decisions import Follow
from dittomq.rpc.channel import Channels
from dittomq.rpc.headers import Group
from dittomq.rpc.metadata_source import RemoteMetadata
from dittomq.rpc.replicas import RemoteReplicas
from dittomq.rpc.vitals import Phase, Vitals
from services.master.config import FlushMode
from services.master.degraded import add_degraded
from services.master.handover import Handover
from services.master.node import MasterNode
from services.master.opening import know_what_the_log_holds
from services.master.parts import NodeParts
from services.master.recovery import Peers
from services.master.term import Term

_NAMESERVER_S: Final = 1.0  # a nameserver may know a newer epoch; one that is silent for so long does not keep a group waiting
_BACKGROUND_FLUSH_S: Final = 0.5
_PREPARE_S: Final = 1.0
_ROOM_S: Final = 1.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reached:
    """Whom a start reaches, and who acts on what it hears."""

    channels: Channels
    mender: Mender
    handover: Handover


async def come_to_lead(node: MasterNode, parts: NodeParts, reached: Reached, vitals: Vitals) -> None:
    """Recover, open the epoch, and do what a leading master does all the time, until cancelled."""
    handover = reached.handover
    await vitals.become(Phase.WAITING, "recovering")
    if parts.loaded.value.node.nameservers:
        await node.nameserver_answered(within_s=_NAMESERVER_S)
    decision = await parts.recovery.run(_peers(parts, reached))
    if isinstance(decision, Follow):
        await handover.follow(decision)
        return
    term = await node.open_term(decision)
    handover.leads()
    await vitals.become(Phase.READY)
    events = WriterEvents(written=term.on_written, flushed=term.on_flushed)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(term.writer.run(events), name="writer")
        tasks.create_task(term.tick(), name="ticks")
        tasks.create_task(handover.give_way(term), name="give way")
        tasks.create_task(handover.look_for_a_successor(term), name="look for a successor")
        tasks.create_task(handover.copy_what_it_lacks(term), name="outgrown")
        tasks.create_task(term.record_degraded(lambda document: _save_degraded(parts, document)), name="degraded")
        tasks.create_task(node.mark_ends(term), name="history")
        tasks.create_task(know_what_the_log_holds(parts, term), name="topics of the log")
        tasks.create_task(_prepare_forever(parts, term), name="prepare")
        if parts.loaded.value.replication.flush_mode is FlushMode.ASYNC_FLUSH:
            tasks.create_task(_flush_forever(term, events), name="flush")


def _peers(parts: NodeParts, reached: Reached) -> Peers:
    config, channels, handover = parts.loaded.value, reached.channels, reached.handover
    group = Group(config.node.cluster, config.node.broker)
    replicas = RemoteReplicas(channels, config.node.cluster, config.node.broker)

    async def take_degraded(address: str) -> None:
        try:
            standing = await replicas.standing(address)
        except Refused as refused:
            raise OutOfReach(address, str(refused)) from refused
        await parts.store_lane.call(lambda: add_degraded(config.name, parts.storage, standing.degraded))
        if not await parts.store_lane.call(lambda: holds_file.add_if_room(parts.storage, config.name, dict(standing.holds))):
            log.warning("holds_not_taken", node=config.name, source=address, problem="the disk is full")

    async def take(address: str) -> Epoch:
        await take_tables(RemoteMetadata(channels, group, lambda: address), parts.metadata, parts.clock)
        return parts.metadata.newest_epoch

    return Peers(
        ranges=lambda address: RemoteRanges(channels, address, config),
        take_tables=take,
        take_degraded=take_degraded,
        give_up=handover.give_up,
        mend=reached.mender.hurry,
        announce=handover.announce,
    )


async def _save_degraded(parts: NodeParts, document: bytes) -> None:
    """Write the degraded ranges down, durably: as soon as the disk has room for that."""
    while True:
        if await parts.store_lane.call(lambda: degraded_file.save_if_room(parts.storage, document)):
            return
        await asyncio.sleep(_ROOM_S)


async def _prepare_forever(parts: NodeParts, term: Term) -> None:
    """In idle moments, write zeros ahead of the log's end: a sync of bytes that lie in written blocks is quicker.

    An append that comes meanwhile waits for one piece, some milliseconds: so the rest of a beginning pause fills the whole window, and
    under a light load what was used is made up for seldom.
    """
    while True:
        await asyncio.sleep(_PREPARE_S)
        while term.writer.is_idle and await _prepare_log(parts):
            pass


async def _prepare_log(parts: NodeParts) -> bool:
    """Zero a piece of the log's next bytes and sync it, so that no append pays for it; False when enough is done."""
    store = parts.store

    def zero() -> bool:
        more = store.ahead.zero()
        if more:
            store.sync()
        return more

    return await parts.store_lane.call(zero)


async def _flush_forever(term: Term, events: WriterEvents) -> None:
    while True:
        await asyncio.sleep(_BACKGROUND_FLUSH_S)
        if term.flushed < term.written:
            await term.writer.flush(events)
