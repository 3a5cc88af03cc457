"""A slave that is to take its master's place: hears everybody, obeys `dittomq.replication.promotion`, and writes its grant down."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, assert_never

import structlog

from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.broker.others import Others
from dittomq.broker.role import BrokerService, Grant, Knowledge, check_room, knowledge, save_grant
from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.workers import Lane
from dittomq.errors import ChangeUnknown, InvalidField, NotPermitted, NotReady, OutOfReach
from dittomq.lineage import NO_RANK, Rank
from dittomq.naming.route_cache import RouteCache
from dittomq.offsets import Epoch
from dittomq.replication.promotion import (
    AskToStepDown,
    Promote,
    PromotionDecision,
    PromotionOrder,
    RefusePromotion,
    Surroundings,
    decide_promotion,
    loss_changed,
)
from dittomq.replication.standings import Stance, Standing, StepDownOrder, SteppedDown
from dittomq.routes import Opening
from dittomq.rpc.replicas import RemoteReplicas
from dittomq.wire.admin import RoleChange, RoleOrder
from services.brokerage import Errand, Place
from services.slave.config import SlaveConfig
from services.slave.follower import Follower
from services.slave.node import MasterAddresses, SlaveNode

log = structlog.get_logger()

_TABLES_S: Final = 3.0
_WRITES_WAIT_S: Final = 3.0
_LOOK_S: Final = 15.0  # with all else that it asks the caller's 30 s are enough
_LOOK_EVERY_S: Final = 0.25
_TELL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class HeirParts:
    """What an heir works with. `tables` makes this node's those of its master, as far as that answers."""

    config: SlaveConfig
    storage: Storage
    files: Lane
    node: SlaveNode
    follower: Follower
    addresses: MasterAddresses
    routes: RouteCache
    replicas: RemoteReplicas
    place: Place
    tables: MetadataPuller


class Heir:
    """Changes the role of one slave; ask its `errand`.

    `tell` reports the node to the nameservers as it is now, within so many seconds, and says how many have heard it.
    """

    def __init__(self, parts: HeirParts) -> None:
        self._parts = parts
        self._address_of: dict[str, str] = {}  # replication addresses of those who answered last, by node
        self._clients = ""
        self._stood: Rank = NO_RANK  # where this node stood when it was last decided
        self._others = Others(parts.config.node.broker, parts.replicas, parts.routes)
        self.tell: Callable[[float], Awaitable[int]] = _nobody_hears
        self.errand: Errand[RoleOrder, RoleChange] = Errand(parts.config.name, self._change)

    def serves_at(self, address: str) -> None:
        """Where clients reach this node: for the producers that its master refuses."""
        self._clients = address

    async def _change(self, order: RoleOrder) -> RoleChange:
        node = self._parts.node
        if order.node != self._parts.config.name:
            raise InvalidField("node", f'this is {self._parts.config.name}, not "{order.node}"')
        if not order.leads:
            return RoleChange(node.epoch, "")
        if order.validate_only:
            return await self._lead(order)
        node.seeks_place = True  # before the others are asked whether they do
        try:
            return await self._lead(order)
        finally:
            node.seeks_place = False

    async def _lead(self, order: RoleOrder) -> RoleChange:
        """Take the place, or say what that would be where it is only to be validated: nobody is told of an epoch or makes room then."""
        self._check_store()
        await self._parts.files.call(self._check_room)
        await self._parts.files.call(lambda: self._parts.place.prepare(BrokerService.MASTER))
        word = PromotionOrder(order.accept_loss, order.old_master_is_stopped)
        heard = await self._hear_all()
        decision = self._decide(heard, word)
        made_room: SteppedDown | None = None
        if isinstance(decision, AskToStepDown):
            heard, made_room = await self._ask_to_step_down(decision.node, heard, order)
            decision = self._decide(heard, word)
        match decision:
            case Promote() if order.validate_only:
                lost = filter(None, (decision.may_be_lost, self._lacking_tables(), decision.not_heard))
                return RoleChange(decision.epoch, "; ".join(lost), comes_back=True)
            case Promote(made_room=Standing()) if made_room is not None:
                return await self._take_place(replace(decision, in_sync=made_room.in_sync), None)
            case Promote():
                return await self._take_place(decision, word)
            case RefusePromotion():
                raise NotPermitted(f"refused: {decision.why}")
            case AskToStepDown():
                raise NotPermitted(f"refused: {decision.node} leads on; give the command again")
            case _:
                assert_never(decision)

    def _check_store(self) -> None:
        """Raise NotReady while this node stands with a copy: it would lead with the old store. One may be begun at any await."""
        self._parts.follower.check_taken_up()
        if self._parts.follower.resync.replica is not None:
            raise NotReady(self._parts.config.name, "it copies its master's whole log anew; wait until it follows")

    def _check_room(self) -> None:
        """Raise DiskFull where a master would take no writes: nobody makes room for that."""
        check_room(self._parts.storage, self._parts.config.name, self._parts.config.store.reserve_bytes)

    def _decide(self, heard: dict[str, Standing], word: PromotionOrder, noted: Collection[str] | None = None) -> PromotionDecision:
        around, own = Surroundings({*self._others.names, *self._address_of}, noted), self._parts.node.standing()
        self._stood = own.rank
        return decide_promotion(own, heard, self._parts.addresses.newest, word, around)

    async def _hear_all(self) -> dict[str, Standing]:
        """Every other replica of the group that answers within a second, by node."""
        parts = self._parts
        heard = await self._others.hear(parts.node.standing().replica_uuid, [parts.addresses.replication])
        self._address_of |= {standing.node: address for address, standing in heard.items()}
        return {standing.node: standing for standing in heard.values()}

    async def _ask_to_step_down(self, master: str, heard: dict[str, Standing], asked: RoleOrder) -> tuple[dict[str, Standing], SteppedDown]:
        """What is heard afterwards, and what the old master said of itself. An answer that was lost is looked for where that one stands.

        Where that is only validated, as though this node held by then all that the old one has.
        """
        parts = self._parts
        with contextlib.suppress(TimeoutError):  # a master refuses who holds other topics; no other table changes while it leads
            async with asyncio.timeout(_TABLES_S):
                await parts.tables.pull_once()
        lacking = self._lacking_tables()
        if lacking and not asked.accept_loss:
            raise NotReady(parts.config.name, f"{lacking}; give the command again")
        self._check_store()
        own = parts.node.standing()
        whom = own.node, own.replica_uuid, own.wire_id, own.topics
        order = StepDownOrder(*whom, _WRITES_WAIT_S, self._clients, asked.validate_only)
        log.info("asks_to_step_down", node=own.node, master=master, validate_only=asked.validate_only)
        try:
            stepped = await parts.replicas.step_down(self._address_of[master], order)
        except OutOfReach:
            if asked.validate_only:
                raise
            found = await self._look_for_step_down(master, order)
            if not isinstance(found, SteppedDown):
                old = found[master]
                return found, SteppedDown(own.end, (master,), old.degraded, old.witnessed, old.known)
            stepped = found
        end, degraded = self._parts.node.standing().end if asked.validate_only else stepped.end, stepped.degraded
        gone = replace(
            heard[master],
            stance=Stance.FOLLOWING,
            end=end,
            confirmed=end,
            stepped_down_at=end,
            degraded=degraded,
            successor=own.node,
            witnessed=stepped.witnessed,
            known=stepped.known,
        )
        return {**heard, master: gone}, replace(stepped, in_sync=(master, *(node for node in stepped.in_sync if node != own.node)))

    async def _look_for_step_down(self, master: str, order: StepDownOrder) -> dict[str, Standing] | SteppedDown:
        try:
            async with asyncio.timeout(_LOOK_S):
                return await self._hear_in_a_place(master, order)
        except TimeoutError:
            why = f"it asked {master} to step down and did not hear whether that one did; give the command again when {master} answers"
            raise ChangeUnknown(self._parts.config.name, why) from None

    async def _hear_in_a_place(self, master: str, order: StepDownOrder) -> dict[str, Standing] | SteppedDown:
        """What is heard as soon as the old master answers and has decided what it is; its answer, where it was still making room.

        Its disk may take long for that, and what it has begun is not called back. Raises Refused: it leads on.
        """
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            heard = await self._hear_all()
            old = heard.get(master)
            if old is None or old.stance is Stance.RECOVERING:
                continue
            if not old.hands_over:
                return heard
            with contextlib.suppress(OutOfReach):
                return await self._parts.replicas.step_down(self._address_of[master], order)

    async def _learn_degraded(self, old: Standing) -> None:
        """What it told last, on the stream that ends with its term, may not have come."""
        if old.degraded and old.lineage:
            await self._parts.follower.degraded.learn(old.degraded, old.lineage[-1].start)

    async def _take_place(self, promotion: Promote, word: PromotionOrder | None) -> RoleChange:
        """From here on this copy grows only as a master's. The grant is durable when this returns, and so is all that was received.

        `word`: the operator's, None where the old master has made room just now.
        """
        parts, planned, old = self._parts, word is None, promotion.made_room
        self._check_store()
        if old is not None and old.node != parts.config.name:
            await self._learn_degraded(old)
        parts.node.takes_epoch = promotion.epoch  # nobody else is to be granted it while this is made durable
        if word is not None:
            try:
                noted_at = await self._let_note(promotion)
                if promotion.must_note:
                    await self._hear_once_more(promotion, word, noted_at)
                self._check_store()  # a copy may have begun meanwhile
            except (NotReady, NotPermitted):  # nothing has been written down: it takes no place
                parts.node.takes_epoch = Epoch(0)
                raise
        await parts.follower.retire()
        if parts.node.standing().rank < self._stood:
            parts.node.takes_epoch = Epoch(0)
            parts.follower.follow_again()
            raise NotReady(parts.config.name, "its log was cut since that was decided; give the command again")
        if planned:
            parts.follower.all_is_confirmed()
        own = parts.node.standing()
        parts.node.in_sync = promotion.in_sync
        knows, filling = _known_by(old, promotion.epoch), parts.follower.filling
        decided = promotion.epoch, promotion.other, own.end, promotion.may_be_lost
        filled = filling.filled_before(promotion.epoch), Epoch(0) if old is None else old.filled_in
        grant = Grant(BrokerService.MASTER, own.wire_id, *decided, knows.witnessed, promotion.must_note > 0, knows.known, *filled)
        await parts.files.call(lambda: save_grant(parts.storage, grant))
        await filling.end(Epoch(grant.epoch - 1))
        if not planned:
            await self._tell(Opening(grant.epoch, parts.config.node.broker_id))
        lost = "; ".join(filter(None, (promotion.may_be_lost, self._lacking_tables())))  # the grant names what its log may lack
        not_heard = promotion.not_heard
        log.warning("promoted", node=own.node, epoch=grant.epoch, end=own.end, other=grant.other, may_be_lost=lost, not_heard=not_heard)
        parts.place.come_back(BrokerService.MASTER, f"it was promoted and opens epoch {grant.epoch}")
        return RoleChange(grant.epoch, "; ".join(filter(None, (lost, not_heard))), comes_back=True)

    def _lacking_tables(self) -> str:
        """Which tables of its master it never had, in words; empty when it had all, or never had a master."""
        tables = self._parts.tables.never_heard if self._parts.node.standing().lineage else ()
        return f"{self._parts.config.name} has not heard of its master's {', '.join(tables)} yet" if tables else ""

    async def _let_note(self, promotion: Promote) -> set[str]:
        """Those who answered before the decision note the epoch, durably: an old master that starts again asks them, and gets none of them.

        The addresses of those who did. Raises NotReady where that are too few; the next command takes a newer epoch.
        """
        opening = Opening(promotion.epoch, self._parts.config.node.broker_id)
        answers = await self._others.announce(opening, self._address_of.values())
        noted_at = {address for address, answer in answers.items() if answer.newest.epoch < opening.epoch}  # itself knows of it
        noted = 1 + len(noted_at)
        if noted < promotion.must_note:
            few = f"of the {promotion.must_note} nodes that must note epoch {opening.epoch} before anybody opens it {noted} did"
            raise NotReady(self._parts.config.name, f"{few}, itself included; give the command again when the others answer")
        return noted_at

    async def _hear_once_more(self, promotion: Promote, word: PromotionOrder, noted_at: set[str]) -> None:
        """Who has noted the epoch acknowledges nothing more to an old master that lives on; until then it may have, behind what was heard.

        Who has not noted it is heard too, and is no witness: it may acknowledge more. Raises NotPermitted, NotReady.
        """
        again = await self._others.hear_at(self._parts.node.standing().replica_uuid, noted_at | set(self._address_of.values()))
        noted = {standing.node for address, standing in again.items() if address in noted_at}
        match self._decide({standing.node: standing for standing in again.values()}, word, noted):
            case RefusePromotion(why):
                raise NotPermitted(f"refused: {why}")
            case AskToStepDown(node):
                raise NotReady(self._parts.config.name, f"{node} answers now, and leads; give the command again")
            case Promote(may_be_lost=lost) if lost != promotion.may_be_lost:
                raise NotPermitted(f"refused: {loss_changed(lost)}; give the command again")

    async def _tell(self, opening: Opening) -> None:
        """An old master that starts again asks nameservers, too, who has opened a newer epoch: none is to say "nobody" from now on."""
        self._parts.node.granted = opening
        if not await self.tell(_TELL_S):
            log.warning("nameservers_not_told", node=self._parts.config.name, epoch=opening.epoch)


def _known_by(old: Standing | None, granted: Epoch) -> Knowledge:
    """What whoever takes the place of `old` knows; None: all, as enough have answered, or it is given up. Its earlier disk is not known."""
    if old is None:
        return knowledge(granted)
    own = () if old.filled_in else (Opening(granted, old.node_id),)
    return knowledge(old.witnessed, (*old.known, *own))


async def _nobody_hears(_: float) -> int:
    return 0
