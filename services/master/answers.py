"""⑤ What a master answers candidates: it promises to one that it sent, or an operator did, and leads no longer then.

While it waits for room to open its epoch it does not lead yet, and promises to any.
"""

import asyncio
from typing import NoReturn

import structlog

from dittomq.broker.role import BrokerService, RoleStart
from dittomq.errors import NotReady, PreconditionFailed, StorageFailure
from dittomq.replication.election_events import Position, SentBy, StandOrder
from dittomq.replication.promise import PromiseRequest, decide_ask, decide_promise
from services.master.node import MasterNode
from services.master.parts import MasterParts

log = structlog.get_logger()


class MasterAnswers:
    """Answers for the replica that leads, or is about to open its epoch."""

    def __init__(self, node: MasterNode, parts: MasterParts, promising: asyncio.Lock) -> None:
        """`promising` is held while the epoch is written down."""
        self._node = node
        self._parts = parts
        self._promising = promising
        self.address = ""  # where this node serves replication; told before the first question
        self._failed: asyncio.Queue[StorageFailure] = asyncio.Queue()

    async def run(self) -> NoReturn:
        """Until cancelled; raises the StorageFailure that kept a promise from being durable: that ends the node."""
        raise await self._failed.get()

    def position(self) -> Position:
        """Where this replica stands."""
        return self._node.position(self.address)

    async def ask(self, candidate: str, sent_by: SentBy) -> tuple[Position, bool]:
        """Where it stands, and whether it would promise."""
        own = self.position()
        return own, self._may_promise(candidate, sent_by) and decide_ask(own, candidate, sent_by)

    async def promise(self, request: PromiseRequest) -> tuple[Position, bool]:
        """Promise, if nothing is in the way, durably; then this master leads no longer. Raises StorageFailure.

        Without a group record there are no elections.
        """
        async with self._promising:
            if not self._may_promise(request.candidate, request.sent_by) or not decide_promise(self.position(), request):
                return self.position(), False
            why = f"it promised epoch {request.epoch} to {request.candidate}"
            try:
                await self._promise(request, why)
            except StorageFailure as failed:
                self._failed.put_nowait(failed)
                raise
            except asyncio.CancelledError:  # the candidate has hung up, as one does that is elected without this answer
                self._follow(request, why)
                raise
        log.info("promised", node=self._node.name, epoch=request.epoch, candidate=request.candidate)
        self._follow(request, why)
        return self.position(), True

    async def stand(self, order: StandOrder) -> None:
        """It leads already, or is about to."""
        if self._node.term is None:
            raise NotReady(self._node.name, str(self._node.why_not_leading()))
        raise PreconditionFailed(f"refused: {self._node.name} leads already, in epoch {self._node.epoch}")

    def _may_promise(self, candidate: str, sent_by: SentBy) -> bool:
        """Not without a record, nor to a node that this master has sent and given up since."""
        return self._parts.watch is not None and (sent_by is not SentBy.MASTER or self._node.switchover_target == candidate)

    def _follow(self, request: PromiseRequest, why: str) -> None:
        """Whatever becomes of the candidate: this term is over."""
        self._parts.place.change_role(BrokerService.SLAVE, why, RoleStart(promised_to=request.candidate))

    async def _promise(self, request: PromiseRequest, why: str) -> None:
        """Acknowledge nothing more, write and sync what was taken, and promise, durably."""
        store, lanes, term = self._parts.store, self._parts.lanes, self._node.term
        if term is not None:
            self._node.end_term(why)
            await term.writer.drained()
        await lanes.store.call(store.sync)
        await lanes.files.call(lambda: store.promise(request.epoch))
        if not request.birth and store.birth:
            await lanes.files.call(lambda: store.take_birth(""))
