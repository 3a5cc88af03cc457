"""A master gives its place to a member of the in-sync set, when an operator says so or when it stops."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from dittomq.doors.workers import Executor
from dittomq.errors import DittoError, NotReady, PreconditionFailed, Unavailable
from dittomq.group_record import Member
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.election_events import SentBy, StandOrder
from dittomq.rpc.replica_client import ReplicaClient
from dittomq.wire.admin import SwitchoverAnswer, SwitchoverOrder
from services.broker_lifecycle import SerialTask
from services.master.node import MasterNode
from services.master.term import Term

_LIMIT_S: Final = 3.0

log = structlog.get_logger()


def check_target(confirm: ConfirmedOffset, target: str) -> Member:
    """The member that is to lead. Raises PreconditionFailed for a node that is none or leads already, NotReady for one that does not
    stream.
    """
    record = confirm.record
    member = record.member_of_node(target)
    if member is None:
        raise PreconditionFailed(f"refused: {target} is not a member of the in-sync set, which is {', '.join(confirm.members)}")
    if member.replica == confirm.own:
        raise PreconditionFailed(f"refused: {target} leads already")
    if target not in confirm.in_sync:
        raise NotReady(target, "it does not stream from its master now")
    return member


def best_target(confirm: ConfirmedOffset) -> Member | None:
    """Of the members that stream the one that holds most; of equals the first by name. None: no member does."""
    streaming = [member for member in confirm.record.members if member.node in confirm.in_sync]
    return min(streaming, key=lambda each: (-confirm.progress.ends.get(each.replica, 0), each.node), default=None)


def is_all_on(confirm: ConfirmedOffset, member: Member) -> bool:
    """Whether all that was written is confirmed, and on that member."""
    return confirm.confirmed >= confirm.written and confirm.progress.ends.get(member.replica, -1) >= confirm.written


@dataclass(frozen=True, slots=True)
class SwitchoverParts:
    """`files` writes the tables. `is_automatic`: a master that stops switches over by itself, where failover is not paused."""

    node: MasterNode
    replicas: ReplicaClient
    files: Executor
    is_automatic: bool
    on_change: Callable[[], None]


class Switchover:
    """One at a time. Writes wait during it; if it comes to nothing, they go on."""

    def __init__(self, parts: SwitchoverParts) -> None:
        self._parts = parts
        self.errand: SerialTask[SwitchoverOrder, SwitchoverAnswer] = SerialTask(parts.node.name, self._carry_out)

    async def before_stop(self) -> None:
        """Switch over within 3 s, if failover is automatic and a member streams. Raises nothing of its own."""
        node = self._parts.node
        term, record = node.term, node.record
        if term is None or term.is_over or record is None or record.paused or not self._parts.is_automatic or node.switchover_target:
            return
        if (member := best_target(term.confirm)) is None:
            return
        try:
            await self._give(term, member)
        except DittoError as problem:
            log.warning("switchover_failed", node=node.name, target=member.node, reason=str(problem))

    async def _carry_out(self, order: SwitchoverOrder) -> SwitchoverAnswer:
        node = self._parts.node
        term = node.leading_term()
        if node.record is None:
            raise PreconditionFailed(f"refused: {node.name} leads without a group record, so no other node can be elected")
        member = check_target(term.confirm, order.target)
        if not order.validate_only:
            await self._give(term, member)
        return SwitchoverAnswer(term.opened.epoch)

    async def _give(self, term: Term, member: Member) -> None:
        """Let writes wait, confirm all on the member, send it, and wait for the promise that it asks for. Raises NotReady after 3 s."""
        node = self._parts.node
        log.info("switchover_began", node=node.name, target=member.node, epoch=term.opened.epoch)
        node.set_switchover_target(member.node)
        self._parts.on_change()
        term.writer.pause()
        late = "did not hold all of its log, confirmed,"
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._confirm_all(term, member)
                late = "was sent, and asked for no promise"
                await self._parts.replicas.stand(member.address, StandOrder(SentBy.MASTER))
                await term.over.wait()
        except TimeoutError:
            raise NotReady(node.name, f"{member.node} {late} within {_LIMIT_S:g} s; writes go on") from None
        except Unavailable as silent:
            raise NotReady(node.name, f"{silent}; writes go on") from silent
        finally:
            node.set_switchover_target("")
            if not term.is_over:
                term.writer.resume()
            self._parts.on_change()

    async def _confirm_all(self, term: Term, member: Member) -> None:
        moved = asyncio.Event()
        unlisten = term.listen(moved.set)
        try:
            await term.writer.drained()
            await self._parts.files.call(_nothing)  # a change of topics that had begun has ended
            while not term.is_over and not is_all_on(term.confirm, member):
                moved.clear()
                await moved.wait()
        finally:
            unlisten()
        if term.is_over:
            raise NotReady(self._parts.node.name, f"its term is over: {term.why_over}")


def _nothing() -> None:
    return
