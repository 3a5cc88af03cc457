"""② Storing a batch: may it be written, where does it lie, what was reached, and the receipt that says so."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dittomq.broker.writer import WrittenBatch
from dittomq.commitlog.store import AppendBatch
from dittomq.doors.traces import AppendSpans, Traces
from dittomq.epoch_history import entry_at
from dittomq.errors import NotReady, Refused
from dittomq.message import Ack, Copy, CopyState, PutStatus
from dittomq.offsets import PhysicalOffset
from dittomq.places import AppendResult, split_at
from dittomq.wire.publishing import OutcomeOrder, PublishOrder, ResentOrder, StoredBatch
from services.master.config import MasterConfig
from services.master.term import Term


class ProduceHandler:
    """Takes batches while the master leads."""

    def __init__(
        self,
        config: MasterConfig,
        term: Callable[[], Term],
        to_write_in: Callable[[], Term],
        refusal: Callable[[], Refused | None],
        *,
        traces: Traces | None = None,
    ) -> None:
        """`term` is the one in which the master answers, `to_write_in` the one in which it writes; each refuses while there is none.

        `refusal` tells why the term takes no writes; None while it does. `traces`: where spans of batches go; None: nowhere.
        """
        self._traces = traces
        self._config = config
        self._term = term
        self._to_write_in = to_write_in
        self._refusal = refusal

    def check_leads(self) -> None:
        """Refuse callers while this master does not lead: the epoch that it names to them is not the one in which it will write."""
        self._to_write_in()

    async def caught_up(self) -> None:
        """Return when every batch that `begin` was given before is written or refused."""
        try:
            term = self._term()
        except NotReady:
            return
        await term.writer.caught_up()

    def spans_of(self, order: PublishOrder) -> AppendSpans | None:
        """Those of a client's batch, for `begin`, which it is given to at once; None without traces. The broker's own have none."""
        return self._traces.appending(order.drafts) if self._traces is not None else None

    async def begin(self, order: PublishOrder, spans: AppendSpans | None = None) -> "PendingProduce":
        """Hand the batch to the writer, in the order of the calls; waits while its queue is full, or the master switches over.

        With `spans`, the ticket is for `finish`, which ends them.
        """
        try:
            term = self._writable()
            batch = AppendBatch(order.drafts, order.producer_id, order.first_sequence, order.sent_since)
            written = await term.writer.submit(batch, order.size, self._writable)  # copies may go, and terms end, while it waits
        except BaseException as failure:
            if spans is not None:
                spans.end(failure)
            raise
        return PendingProduce(order.resent(), term, written, spans)

    async def finish(self, ticket: "PendingProduce") -> StoredBatch:
        """Wait until the batch is written and its level reached. A Refused means that nothing of it is in the log.

        The ticket's own term answers, also while the node drains: what was written is never refused.
        """
        if ticket.spans is None:
            return await self._answer(ticket.term, ticket.order, await ticket.written)
        with ticket.spans as spans:
            placed = await ticket.written
            spans.written(placed)
            stored = await self._answer(ticket.term, ticket.order, placed)
            spans.reached(stored.asked, stored.status, stored.copies)
            return stored

    async def answer(self, order: OutcomeOrder | ResentOrder, placed: Sequence[AppendResult]) -> StoredBatch:
        """Wait for the level of messages that an earlier try stored, and say what was reached."""
        return await self._answer(self._term(), order, placed)

    async def _answer(self, term: Term, order: OutcomeOrder | ResentOrder, placed: Sequence[AppendResult]) -> StoredBatch:
        asked = order.ack or self._config.replication.default_ack
        timeout_s = self._config.replication.ack_timeout_ms / 1000 if order.timeout_s is None else order.timeout_s
        start, end = min(run.physical_offset for run in placed), max(run.end for run in placed)
        term.know_damage()
        status = await term.acks.wait(start, end, asked, timeout_s)
        return self._stored(term, placed, _Reached(start, end, status, asked))

    def check_absence(self) -> None:
        """Raise NotReady unless what this log lacks is lost for good: each election quorum has a member that has adopted this epoch.

        Before, another log may win the next election, and hold it. No caller waits for that: it can send the message again.
        """
        if not self._term().has_been_adopted:
            raise NotReady(self._config.name, "too few members have adopted its epoch; what its log lacks may be on another one")

    def _writable(self) -> Term:
        term = self._to_write_in()
        if (refusal := self._refusal()) is not None:
            raise refusal
        return term

    def _stored(self, term: Term, placed: Sequence[AppendResult], reached: "_Reached") -> StoredBatch:
        start, end, epoch_history = reached.start, reached.end, term.opened.epoch_history
        entries = [entry_at(epoch_history, term.opened.start)] * len(placed)
        if start < term.opened.start:  # an earlier try may have been stored earlier
            placed = split_at(placed, [entry.start for entry in epoch_history])
            entries = [entry_at(epoch_history, run.physical_offset) for run in placed]
        own = [(self._config.name, term.flushed >= end)] if term.confirm.master_has(start, end) else []
        copies = [*own, *term.confirm.copies(start, end)]
        return StoredBatch(
            status=reached.status,
            asked=reached.asked,
            levels_reached=term.confirm.levels_reached(start, end),
            copies=tuple(Copy(node, CopyState.FLUSHED if flushed else CopyState.RECEIVED) for node, flushed in copies),
            entries=entries,
            broker=self._config.node.broker,
            placed=placed,
            duplicate=all(run.duplicate for run in placed),
        )


@dataclass(frozen=True, slots=True)
class PendingProduce:
    """A batch that the writer has, without its messages: many wait for their level when a slave stands still."""

    order: ResentOrder
    term: Term
    written: "asyncio.Future[WrittenBatch]"
    spans: AppendSpans | None


@dataclass(frozen=True, slots=True)
class _Reached:
    start: PhysicalOffset
    end: PhysicalOffset
    status: PutStatus
    asked: Ack
