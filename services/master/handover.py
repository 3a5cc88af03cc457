"""How a master gives its place up: to a slave that asks for it, or because another node has opened a newer epoch."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, NoReturn

import structlog

from dittomq.broker.heard import Heard
from dittomq.broker.others import Others
from dittomq.broker.role import BrokerService, Grant, Knowledge, check_room, knowledge, save_grant
from dittomq.broker.verified import Verified, save_verified
from dittomq.commitlog.disk.side_file import ROOM_BYTES
from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.workers import Lane
from dittomq.errors import DiskFull, DittoError, InvalidField, NotMaster, NotPermitted, NotReady
from dittomq.metadata.formats import TOPICS
from dittomq.naming.registrar import NameserverNews
from dittomq.naming.route_cache import RouteCache
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.leadership_decisions import Follow
from dittomq.replication.master_log import remedy_of
from dittomq.replication.standings import KnownBefore, Stance, Standing, StepDownOrder, SteppedDown
from dittomq.routes import NO_OPENING, Node, Opening
from dittomq.rpc.replicas import RemoteReplicas
from dittomq.wire.admin import RoleChange, RoleOrder
from services.brokerage import Errand, Place
from services.master.node import MasterNode
from services.master.replication import Replication
from services.master.slaves import FOLLOWING
from services.master.term import Term

log = structlog.get_logger()

_ASK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class HandoverParts:
    """What a handover works with. `heard` is what this node was told of, `changed` tells the nameservers.

    `mark_incomplete` durably says that the store holds a part only of what slaves have. Raises DiskFull, StoreFailed.
    """

    node: MasterNode
    storage: Storage
    files: Lane
    replication: Replication
    replicas: RemoteReplicas
    routes: RouteCache
    place: Place
    heard: Heard
    changed: Callable[[], None]
    mark_incomplete: Callable[[], Awaitable[None]]


class Handover:
    """Changes the role of one master; ask its errands. Each demotion is durable before anybody is told of it."""

    def __init__(self, parts: HandoverParts) -> None:
        self._parts = parts
        self._others = Others(parts.node.broker, parts.replicas, parts.routes)
        self._master_address = ""  # replication address of the master that nameservers name
        self._news: NameserverNews | None = None  # what they said last
        self._gives_way_to = NO_OPENING  # the newest that it was told of
        self.step_down: Errand[StepDownOrder, SteppedDown] = Errand(parts.node.name, self._step_down)
        self.change_role: Errand[RoleOrder, RoleChange] = Errand(parts.node.name, self._change_role)

    def heard(self, news: NameserverNews) -> None:
        """The nameservers answered: this node ends when its place is taken, unless it gives way to another one of its group by itself."""
        self._news = news
        self._master_address = news.master.master_replication if news.master is not None else ""
        self._parts.node.heard(news)
        if news.superseded and self._has_opened(news.newest):
            self._open_again(news.newest)
        elif not self._is_elsewhere(news.newest):
            self._parts.place.heard(news)

    def leads(self) -> None:
        """The epoch is open: what was heard while it was being opened counts for it."""
        if self._news is not None:
            self.heard(self._news)

    def standing(self) -> Standing:
        """Where this replica stands, for whoever is to be promoted."""
        node = self._parts.node
        return replace(node.standing(), hands_over=self.step_down.is_under_way or node.hands_over_to != "")

    async def others(self) -> list[Standing]:
        """Where the other replicas of the group stand that nameservers list, and that answer within a second."""
        return list((await self._others.hear(self.standing().replica_uuid)).values())

    async def announce(self, opening: Opening, known: list[str]) -> list[KnownBefore]:
        """Let the others know that this node opens an epoch."""
        return list((await self._others.announce(opening, known)).values())

    async def announced(self, opening: Opening) -> KnownBefore:
        """Another node opens an epoch: this one gives way, durably before this returns, unless its own is as new. Raises DiskFull.

        A second one that opens it hears at once of the first one, which may still be being written down.
        """
        before, first = self.standing(), max(self._gives_way_to, self._parts.heard.newest, key=lambda each: each.epoch)
        if first.epoch >= opening.epoch and first.epoch > before.claim.epoch and first.opener_id != opening.opener_id:
            return KnownBefore(Stance.FOLLOWING, first)
        if self._parts.node.announced(opening):
            self._gives_way_to = opening
            await self._parts.heard.promise(opening)
        return KnownBefore(before.stance, before.claim)

    async def follow(self, decision: Follow) -> None:
        """Another node has opened a newer epoch: come back as its slave."""
        leader = await self._leader()
        node = f"{self._parts.node.broker}/{decision.opener_id}"
        given_up = leader.wire_id if leader is not None else 0
        log.warning("gives_way", node=self._parts.node.name, to=node, epoch=decision.epoch, if_nobody_leads="see dittomq ha-status")
        with contextlib.suppress(DiskFull):  # then the grant alone keeps the epoch
            await self._parts.heard.note(Opening(decision.epoch, decision.opener_id))
        await self._become_slave(given_up or decision.opener_id or self._parts.node.node_id, decision.epoch, node)

    async def give_way(self, term: Term) -> None:
        """Come back when it is known who has opened a newer epoch: as that node's slave, or to open one above; cancelled with the term."""
        node = self._parts.node
        while (opener := term.newer.opener_id) is None or node.hands_over_to:
            await term.outdated.wait()
            term.outdated.clear()
        if opener == node.node_id:
            self._open_again(term.newer)
        else:
            await self.follow(Follow(term.newer.epoch, opener))

    async def look_for_a_successor(self, term: Term) -> NoReturn:
        """Ask slaves that left, or lag, what they know: who was promoted out of reach is heard of once they are reached; until cancelled.

        Nameservers tell it only at the next registration, and nobody who follows that one dials here.
        """
        while True:
            await asyncio.sleep(_ASK_EVERY_S)
            parts, node = self._parts, self._parts.node
            heard = await self._others.hear_at(node.standing().replica_uuid, parts.replication.behind(term))
            for other in heard.values():
                if other.claim.epoch > term.opened.epoch and other.seeks_place is False and other.stance is not Stance.RECOVERING:
                    term.end(f"{other.node} knows of epoch {other.claim.epoch}, newer than {term.opened.epoch}", other.claim)

    async def copy_what_it_lacks(self, term: Term) -> None:
        """A slave holds all that is confirmed here, and more that is: come back and hear the slaves first; cancelled with the term.

        So it is when this node led on, or started again, out of reach of those who promoted another one. Where something was confirmed
        in its epoch that the slave does not hold, or on a full disk, an operator decides.
        """
        await term.outgrown.wait()
        if term.is_over:
            return
        node, opened = self._parts.node, term.opened
        if term.confirm.confirmed > term.outgrown_at:
            term.needs_operator(remedy_of(node.name))
            return
        log.warning("copies_its_slaves", node=node.name, epoch=opened.epoch, common=term.outgrown_at, end=term.written, lacks=term.lacks)
        term.end("it copies what it lacks from its slaves", Opening(Epoch(opened.epoch + 1), None))
        await term.writer.drained()
        try:
            await self.give_up(Opening(opened.epoch, node.node_id))
        except DiskFull as full:
            term.needs_operator(f"{full}; then start it again")
            return
        self._parts.place.come_back(BrokerService.MASTER, "its slaves have confirmed bytes that it lacks")

    async def give_up(self, opening: Opening) -> None:
        """Note an epoch that this node has opened, which its log is to forget: that is a part only of what slaves hold. Raises DiskFull."""
        await self._parts.heard.note(opening)
        await self._parts.mark_incomplete()

    def _open_again(self, opening: Opening) -> None:
        """It has opened that epoch, on another disk: whoever leads by an older one gives way as soon as it hears of that."""
        self._parts.place.come_back(BrokerService.MASTER, f"it has opened epoch {opening.epoch} before")

    def _has_opened(self, opening: Opening) -> bool:
        node = self._parts.node
        return opening.opener_id == node.node_id and opening.epoch > node.epoch

    def _is_elsewhere(self, opening: Opening) -> bool:
        node = self._parts.node
        return opening.opener_id not in (None, node.node_id) and opening.epoch > node.epoch

    async def _change_role(self, order: RoleOrder) -> RoleChange:
        node = self._parts.node
        if order.node != node.name:
            raise InvalidField("node", f'this is {node.name}, not "{order.node}"')
        lacking = "" if node.term is None else node.term.lacks or self._parts.replication.promises.unknown
        if order.leads and order.accept_loss and node.term is not None and lacking:
            return await self._lead_anew(node.term, lacking, validate_only=order.validate_only)
        if order.leads:
            return await node.lead(accept_loss=order.accept_loss, validate_only=order.validate_only)
        if node.term is not None:
            raise NotPermitted(f"refused: {node.name} leads; say who is to lead instead: dittomq role lead NODE")
        leader = await self._leader()
        if leader is None:
            raise NotPermitted(f"refused: no other node of {node.broker} is known to lead, so {node.name} has nobody to follow")
        await self._parts.files.call(lambda: self._parts.place.prepare(BrokerService.SLAVE))
        if not order.validate_only:
            await self._become_slave(leader.wire_id or leader.node_id or node.node_id, leader.newest.epoch, leader.node)
        return RoleChange(leader.newest.epoch, "", comes_back=True)

    async def _lead_anew(self, term: Term, lost: str, *, validate_only: bool) -> RoleChange:
        """Come back as the master of an epoch above all known, in which slaves that have more than this log are cut."""
        parts, node = self._parts, self._parts.node
        leader = await self._leader()
        if leader is not None:
            raise NotPermitted(f"refused: {leader.node} leads; stop it first, or promote it: dittomq role lead {leader.node}")
        await parts.files.call(lambda: parts.place.prepare(BrokerService.MASTER))
        epoch = Epoch(1 + max(term.opened.epoch, term.newer.epoch, self._news.newest.epoch if self._news is not None else 0))
        if validate_only:
            return RoleChange(epoch, lost, comes_back=True)
        given_up, other = (0, "") if node.grant is None else (node.grant.broker_id, node.grant.other)
        term.end("its operator lets it lead anew", Opening(epoch, None))
        await term.writer.drained()
        grant = Grant(BrokerService.MASTER, given_up, epoch, other, PhysicalOffset(node.standing().end), lost, witnessed=epoch)
        await parts.files.call(lambda: save_grant(parts.storage, grant))
        log.warning("leads_anew", node=node.name, epoch=epoch, may_be_lost=lost)
        parts.place.come_back(BrokerService.MASTER, f"it gives up what it lacks and opens epoch {epoch}")
        return RoleChange(epoch, lost, comes_back=True)

    async def _leader(self) -> Standing | None:
        """Another node that a nameserver calls the master and that says that it is one.

        A nameserver that refuses this node, because the other one has its id, tells it nothing; its list of nodes does.
        """
        leader = await self._leader_at(self._master_address)
        if leader is not None:
            return leader
        nodes: list[Node] = []
        with contextlib.suppress(DittoError):
            nodes = await self._parts.routes.nodes_of(self._parts.node.broker)
        for node in sorted(nodes, key=lambda node: node.epoch, reverse=True):
            if node.broker_id == 0 and (leader := await self._leader_at(node.replication_address)) is not None:
                return leader
        return None

    async def _leader_at(self, address: str) -> Standing | None:
        if not address:
            return None
        try:
            standing = await self._parts.replicas.standing(address)
        except DittoError:
            return None
        own = standing.replica_uuid == self._parts.node.standing().replica_uuid
        return None if own or standing.stance is Stance.FOLLOWING else standing

    async def _step_down(self, order: StepDownOrder) -> SteppedDown:
        """Let writes wait, confirm all that was written, on the successor too, and give the place up. Refused, this master leads on.

        Those that waited are refused when the demotion is durable, and told who leads: before, they would only come back here.
        """
        node = self._parts.node
        term = node.leading_term()
        proven = self._check(order)
        await self._parts.files.call(self._check_room)
        await self._parts.files.call(lambda: self._parts.place.prepare(BrokerService.SLAVE))
        if order.validate_only:
            return self._told(term)
        await self._ask_back(order)
        await self._parts.files.call(lambda: save_verified(self._parts.storage, Verified(proven, order.replica_uuid)))
        node.hands_over(order.successor)
        term.writer.pause()
        try:
            async with asyncio.timeout(order.timeout_s):
                await term.writer.drained()
                await self._parts.files.call(_nothing)  # a change of topics that had begun has ended
                self._check(order)
                await self._confirm_all(term, order.successor)
                self._check(order)  # it may have come back meanwhile, with less
        except BaseException as problem:
            node.hands_over("")
            term.writer.resume()
            term.outdated.set()  # who gives way to a newer epoch waited for this
            if isinstance(problem, TimeoutError):
                late = f"{order.successor} did not hold all of its log, confirmed, within {order.timeout_s:g} s"
                raise NotReady(node.name, node.why_not_leading() or late) from None
            raise
        stepped_down = self._told(term)
        await self._become_slave(order.wire_id, term.opened.epoch, order.successor)
        node.gave_way_to = order.clients
        term.writer.resume(NotMaster(node.name, order.clients))
        return stepped_down

    async def _ask_back(self, order: StepDownOrder) -> None:
        """Raise NotReady unless the successor says that it is told to lead: an order long on its way would leave nobody to lead."""
        node, address = self._parts.node, self._parts.replication.records[order.successor].replication_address
        try:
            asks = (await self._parts.replicas.standing(address)).seeks_place is not False
        except DittoError as silent:
            raise NotReady(node.name, f"{order.successor}, which asks for its place, cannot be asked back: {silent}") from None
        if not asks:
            raise NotReady(node.name, f"{order.successor} is not told to lead any more; give the command again")

    def _told(self, term: Term) -> SteppedDown:
        """What the successor is told."""
        known = self._parts.replication.handed_on(term)
        return SteppedDown(term.written, term.confirm.in_sync, term.degraded.told, term.opened.witnessed, known)

    async def _confirm_all(self, term: Term, successor: str) -> None:
        if not await _all_confirmed(term, successor):
            raise NotReady(self._parts.node.name, f"its epoch is over: {term.refuses_writes}")

    def _check_room(self) -> None:
        """Raise DiskFull where its demotion could not be written down: that would end a node that serves."""
        check_room(self._parts.storage, self._parts.node.name, ROOM_BYTES)

    def _check(self, order: StepDownOrder) -> PhysicalOffset:
        """Raise unless the successor is the slave that it says it is, and holds the same topics; how far it is proven equal."""
        node, record = self._parts.node, self._parts.replication.records.get(order.successor)
        if record is None or record.state != FOLLOWING or record.replica_uuid != order.replica_uuid:
            raise NotReady(node.name, f"{order.successor} does not follow it now")
        if order.topics != node.metadata.table(TOPICS).version:
            raise NotReady(node.name, f"{order.successor} holds other topics; give the command again")
        return record.proven_equal

    async def _become_slave(self, wire_id: int, epoch: Epoch, other: str) -> None:
        parts, term = self._parts, self._parts.node.term
        knows = Knowledge() if term is None else knowledge(term.opened.witnessed, parts.replication.handed_on(term))
        end = PhysicalOffset(parts.node.standing().end)
        grant = Grant(BrokerService.SLAVE, wire_id, epoch, other, end, witnessed=knows.witnessed, known=knows.known)
        await parts.files.call(lambda: save_grant(parts.storage, grant))
        log.warning("stepped_down", node=parts.node.name, epoch=epoch, end=grant.end, other=other)
        parts.changed()
        parts.place.come_back(BrokerService.SLAVE, f"{other} leads instead of it")


def _nothing() -> None:
    return


async def _all_confirmed(term: Term, successor: str) -> bool:
    """True when all that was written is confirmed and the successor holds it; False once the term is over: another one may lead by then."""
    moved, confirm = asyncio.Event(), term.confirm
    unlisten = term.listen(moved.set)
    try:
        while not term.is_over and (confirm.confirmed < term.written or successor not in dict(confirm.copies(term.written, term.written))):
            moved.clear()
            await moved.wait()
    finally:
        unlisten()
    return not term.is_over
