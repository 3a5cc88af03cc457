"""Answers a producer whose reply was lost: is the message in the log, and what was reached."""

from collections.abc import Callable

from dittomq.commitlog.store import Store
from dittomq.doors.workers import Executor
from dittomq.errors import NotReady, UnknownProducerId
from dittomq.places import AppendResult, concat
from dittomq.wire.publishing import OutcomeOrder, ResentOrder, SendOutcome, StoredBatch
from services.master.produce import ProduceHandler
from services.master.term import Term


class Idempotency:
    """Looks in the log's own memory of producers, in turn with the writer: a batch that still waits for its turn is not seen."""

    def __init__(
        self, node: str, store: Store, writer_lane: Executor, appends: ProduceHandler, *, leading_term: Callable[[], Term]
    ) -> None:
        """`leading_term` raises NotReady while the master does not lead."""
        self._node = node
        self._store = store
        self._lane = writer_lane
        self._appends = appends
        self._leading_term = leading_term

    async def look(self, order: OutcomeOrder) -> tuple[SendOutcome, StoredBatch | None]:
        """Stored with its receipt, not stored, or no longer known; NotReady while another log that may win an election may have it."""
        self._leading_term()
        try:
            found = await self._lane.call(lambda: self._store.find_sequence(order.producer_id, order.sequence, order.sent_since))
        except UnknownProducerId:
            return SendOutcome.UNKNOWN, None
        if found is None:
            self._appends.check_absence()
            self._check_damage()
            return SendOutcome.NOT_STORED, None
        return SendOutcome.STORED, await self._appends.answer(order, [found])

    async def stored_before(self, order: ResentOrder) -> StoredBatch | None:
        """What an earlier try of a batch stored that cannot be stored now; None when it did not store all of it, or nobody remembers.

        Raises what keeps this node from knowing.
        """
        if not order.producer_id:
            return None
        await self._appends.caught_up()  # the earlier try may still wait for its turn
        self._leading_term()
        try:
            placed = await self._lane.call(lambda: self._places(order))
        except UnknownProducerId:
            return None
        return await self._appends.answer(order, placed) if placed else None

    def _check_damage(self) -> None:
        """Raise NotReady while part of the log cannot be read here: what lies there may never have been looked at."""
        damage = self._store.damage
        if damage.ranges:
            raise NotReady(self._node, f"{damage.total_bytes:,} bytes of its log are damaged, and what it lacks may be there")

    def _places(self, order: ResentOrder) -> list[AppendResult]:
        places = []
        for sequence in order.sequences:
            found = self._store.find_sequence(order.producer_id, sequence)
            if found is None:
                return []
            places.append(found)
        return concat(places)
