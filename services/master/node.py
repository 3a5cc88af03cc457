"""A master from its start to its end: what it knows of itself, and how it comes to lead."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import structlog

from dittomq.broker.keeping import Known
from dittomq.broker.metadata import Metadata
from dittomq.broker.registration import Identity, registration
from dittomq.broker.role import Grant
from dittomq.broker.watching import StatusWatches
from dittomq.copies import CopyDescription
from dittomq.errors import NotMaster, NotPermitted, NotReady
from dittomq.ha_status import HaStatus
from dittomq.lineage import newest_epoch, newest_opener
from dittomq.metadata.formats import TOPICS
from dittomq.naming.registrar import NameserverNews
from dittomq.offsets import Epoch
from dittomq.reads import Readable
from dittomq.replication.leadership_decisions import Lead
from dittomq.replication.standings import Stance, Standing
from dittomq.routes import NO_OPENING, Claim, NodeState, Opening, Registration
from dittomq.rpc.headers import Answerer
from dittomq.settings import settings_of
from dittomq.version import VERSION
from dittomq.wire.admin import BrokerDescription, RoleChange, Setting
from services.master.opening import open_epoch
from services.master.parts import NodeParts
from services.master.slaves import with_absent
from services.master.status import Leaving, StatusBoard
from services.master.term import Term

_MARK_S: Final = 0.5
_ROOM_S: Final = 1.0

log = structlog.get_logger()


class MasterNode:
    """One master."""

    def __init__(self, parts: NodeParts, on_change: Callable[[], None]) -> None:
        """`on_change` is called when what is registered with the nameservers changes."""
        self._parts = parts
        self._config = parts.loaded.value
        self._on_change = on_change
        self._accepted_loss = ""
        self._board = StatusBoard(self._config, parts.store, parts.pins, parts.clock)
        self._nameserver_answered = asyncio.Event()
        self.watches = StatusWatches(self._config.name, self.status, parts.clock)
        self.term: Term | None = None
        self._told = NO_OPENING  # the newest epoch that it gives way to, though it has decided to lead
        self.draining = False
        self.hands_over_to = ""  # the slave that takes its place, while writes wait for that reason
        self._hands_over_since_ms: int | None = None
        self.gave_way_to: str | None = None  # where clients reach the one that has taken it, "" where that is unknown; None: nobody has

    @property
    def epoch(self) -> Epoch:
        """The epoch that this master opened, or the newest of its log before that."""
        return self.term.opened.epoch if self.term is not None else newest_epoch(self._parts.store.lineage)

    @property
    def name(self) -> str:
        """ "broker/id" as configured."""
        return self._config.name

    @property
    def broker(self) -> str:
        """Name of its group."""
        return self._config.node.broker

    @property
    def node_id(self) -> int:
        """Its configured id."""
        return self._config.node.broker_id

    def answerer(self) -> Answerer:
        """Who answers a call that comes now; with the log's end unless `term_to_write_in` refuses."""
        log_end = None
        with contextlib.suppress(NotMaster, NotReady):
            log_end = self.term_to_write_in().written
        return Answerer(self.name, self._config.node.cluster, self.epoch, log_end)

    @property
    def grant(self) -> Grant | None:
        """What the last role change decided; None when there was none."""
        return self._parts.grant

    def standing(self) -> Standing:
        """Where this replica stands, for whoever is to be promoted."""
        store, grant = self._parts.store, self._parts.grant
        return Standing(
            node=self.name,
            node_id=self.node_id,
            wire_id=0 if grant is None else grant.broker_id,
            replica_uuid=store.replica_uuid,
            stance=Stance.LEADING if self.term is not None else Stance.RECOVERING,
            lineage=store.lineage,
            end=store.end,
            confirmed=self.readable().confirmed,
            granted=Epoch(0) if grant is None else grant.epoch,
            stepped_down_at=None,
            filled_in=Epoch(0) if grant is None else grant.filled_in,
            rules=self._config.replication.group_rules,
            topics=self._parts.metadata.table(TOPICS).version,
            degraded=() if self.term is None else self.term.degraded.told,
        )

    @property
    def metadata(self) -> Metadata:
        """The group's tables, as this node holds them."""
        return self._parts.metadata

    def leading_epoch(self) -> Epoch:
        """The epoch in which tables may be changed; NotReady while this master does not lead."""
        return self.leading_term().opened.epoch

    def why_not_leading(self) -> str:
        """What this master waits for; empty while it leads."""
        if self.hands_over_to:
            return f"it hands its place over to {self.hands_over_to}"
        if self.draining:
            return "it is shutting down"
        if self.term is not None and self.term.is_over:
            return f"its epoch is over: {self.term.refuses_writes}"
        return "" if self.term is not None else f"recovering, waits for {self._parts.recovery.waiting_for}"

    def check_complete(self) -> None:
        """Raise NotReady while slaves may hold more than this log and these tables: until it leads, and when its epoch is over."""
        if self.term is None or self.term.is_over:
            raise NotReady(self.name, self.why_not_leading())

    def hands_over(self, successor: str) -> None:
        """That slave is to take its place, and writes wait; "": it leads on."""
        self.hands_over_to = successor
        self._hands_over_since_ms = self._parts.clock.wall_ms() if successor else None

    def leading_term(self) -> Term:
        """The term; NotReady before it, and while the node is shutting down, gives its place up, or has heard of a newer one."""
        if self.term is None or self.why_not_leading():
            raise NotReady(self.name, self.why_not_leading())
        return self.term

    def term_to_write_in(self) -> Term:
        """The term whose writer takes frames, or lets them wait while it is not decided whether this master gives its place up.

        Raises NotMaster, which names the successor, once it has, and NotReady while it does not lead.
        """
        if self.gave_way_to is not None:
            raise NotMaster(self.name, self.gave_way_to)
        if self.draining or self.term is None or self.term.is_over:
            raise NotReady(self.name, self.why_not_leading())
        return self.term

    async def open_term(self, decision: Lead) -> Term:
        """Open the epoch, durably, and lead in it."""
        term = self.term = await open_epoch(self._parts, decision)
        self._accepted_loss = decision.accepted_loss
        if self._told.epoch >= decision.epoch:
            self._give_way(term, self._told)
        self._parts.replication.lead(term, lambda: self.metadata.table(TOPICS).version)
        self._on_change()
        return term

    def readable(self) -> Readable:
        """Consumers never see more than what is confirmed."""
        confirmed = self.term.confirm.confirmed if self.term is not None else self._parts.store.confirmed_at_start
        return Readable(confirmed, confirmed)

    def known(self) -> Known:
        """What is worth surviving a crash."""
        if self.term is None:
            return Known(self._parts.store.flushed, self._parts.store.confirmed_at_start, self._parts.store.in_sync_at_start)
        return Known(self.term.flushed, self.term.confirm.confirmed, self.term.confirm.in_sync)

    async def nameserver_answered(self, within_s: float) -> None:
        """Return when all nameservers that answer have said which epochs they know, or when not all did in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._nameserver_answered.wait()

    def heard(self, news: NameserverNews) -> None:
        """The nameservers answered."""
        self._parts.recovery.nameservers_say(news)
        if news.complete and (news.answers or news.taken):
            self._nameserver_answered.set()
        if self.term is not None:
            self._hear_of(news, self.term)

    def announced(self, opening: Opening) -> bool:
        """Another node is about to open this epoch; whether this one gives way."""
        if self.term is not None:
            gives_way = opening.epoch > self.term.opened.epoch
            if gives_way:
                self._give_way(self.term, opening)
            return gives_way
        gives_way = self._parts.recovery.told_of(opening)
        if gives_way and opening.epoch > self._told.epoch:
            self._told = opening
        return gives_way

    def _give_way(self, term: Term, opening: Opening) -> None:
        term.end(f"node {opening.opener_id} of its group opens epoch {opening.epoch}", opening)

    def _hear_of(self, news: NameserverNews, term: Term) -> None:
        """End the term when another replica has its place, or a newer epoch is known."""
        newest = news.newest
        if news.superseded:
            elsewhere = newest.epoch > term.opened.epoch and newest.opener_id != self.node_id
            lost = Opening(Epoch(max(newest.epoch, term.opened.epoch + 1)), newest.opener_id if elsewhere else None)
            term.end("another replica took this node's place at the nameserver", lost)
        elif newest.epoch > term.opened.epoch:
            term.end(f"nameservers know of epoch {newest.epoch}, newer than {term.opened.epoch}", newest)
        elif rival := self._stronger_rival(news, term):
            term.end(f"node {rival.opener_id} of its group leads, which opened epoch {rival.epoch} too", rival)

    def _stronger_rival(self, news: NameserverNews, term: Term) -> Opening | None:
        """Another node that opened this epoch too, and leads on instead of this one.

        Nameservers of different opinions refuse each of the two for the other: then it is the one with the higher claim. It is the other
        one, whatever its claim, when no nameserver has taken this node in for so long that the other is refused nowhere for it, and the
        other stays though it was told of this one.
        """
        openers = {None, self.node_id}
        rivals = [each for each in news.rivals if each.opening.epoch == term.opened.epoch and each.opening.opener_id not in openers]
        strongest = max(rivals, key=lambda each: each.rank, default=None)
        own = Claim(Opening(term.opened.epoch, self.node_id), None if self.grant is None else self.grant.epoch)
        gives_way = strongest is not None and (strongest.rank > own.rank or (news.taken and not news.may_hold))
        return strongest.opening if strongest is not None and gives_way else None

    async def mark_ends(self, term: Term) -> None:
        """Remember where the ends are, twice a second, so that lags can be told as times; until cancelled."""
        while True:
            self._board.mark(term)
            await asyncio.sleep(_MARK_S)

    def status(self) -> HaStatus:
        """Replication of the group."""
        records = with_absent(self._parts.replication.records, self._known_slaves(), self._config.replication.replicas_expected)
        applied = self._parts.dispatcher.applied
        if self.term is None:
            return self._board.recovering(self._parts.recovery.waiting_for, applied, records)
        leaving = Leaving(self.why_not_leading(), self.hands_over_to, self._hands_over_since_ms)
        return self._board.leading(self.term, applied, records, leaving)

    def _known_slaves(self) -> set[str]:
        """Nodes of the group that were its slaves before this start, or change places with this one."""
        grant = self._parts.grant
        partner = {grant.other} if grant is not None and grant.other else set()
        return {*self._parts.replication.held, *self._parts.store.in_sync_at_start, *partner} - {self.name}

    async def lead(self, *, accept_loss: bool, validate_only: bool) -> RoleChange:
        """Let this master lead without the copies it waits for; the answer comes when it leads or still cannot.

        With `validate_only` it goes on waiting, and says what it would do with what it has heard so far.
        """
        if self.term is not None and self.term.refuses_writes:
            raise NotPermitted(f"refused: {self._config.name} takes no writes: {self.term.refuses_writes}")
        if self.term is None and not accept_loss:
            raise NotReady(self._config.name, self.why_not_leading())
        if self.term is None and validate_only:
            foreseen = self._parts.recovery.if_loss_is_accepted()
            if isinstance(foreseen, str):
                raise self._cannot_lead(foreseen)
            return RoleChange(foreseen.epoch, foreseen.accepted_loss)
        if self.term is None:
            if missing := await self._parts.recovery.accept_loss():
                raise self._cannot_lead(missing)
            await self._parts.replication.wait_for_term()
        assert self.term is not None
        return RoleChange(self.term.opened.epoch, self._accepted_loss)

    def _cannot_lead(self, missing: str) -> NotPermitted:
        """The operator's word does not go past that."""
        return NotPermitted(f"refused: {self._config.name} cannot lead all the same; it waits for {missing}")

    def description(self) -> BrokerDescription:
        """What this node is and how it is configured."""
        return BrokerDescription(
            version=VERSION,
            cluster=self._config.node.cluster,
            node=self._config.name,
            role=self._config.role,
            state="leading" if self.term is not None else "recovering",
            replica_uuid=self._parts.store.replica_uuid,
            settings=tuple(Setting(*setting) for setting in settings_of(self._parts.loaded)),
        )

    def copy(self) -> CopyDescription:
        """What this copy holds, for the audit."""
        store = self._parts.store
        return CopyDescription(
            node=self._config.name,
            cluster=self._config.node.cluster,
            replica_uuid=store.replica_uuid,
            role=self._config.role,
            lineage=store.lineage,
            generation=store.generation,
            min_offset=store.min_offset,
            end=store.end,
            flushed=store.flushed,
            confirmed=self.readable().confirmed,
            segment_bytes=self._config.store.segment_bytes,
            topic_version=self._parts.metadata.table(TOPICS).version,
            version=VERSION,
        )

    def registration(self, identity: Identity) -> Registration:
        """What nameservers are told."""
        table = self._parts.metadata.table(TOPICS)
        state = NodeState.RECOVERING if self.why_not_leading() else NodeState.SERVING
        return registration(identity, self._opening(), state, table)

    def _opening(self) -> Opening:
        """The newest epoch of the log, or the one that a promotion granted and that is still to be opened."""
        grant, lineage = self._parts.grant, self._parts.store.lineage
        if grant is not None and grant.epoch > newest_epoch(lineage):
            return Opening(grant.epoch, self._config.node.broker_id)
        return Opening(newest_epoch(lineage), newest_opener(lineage))
