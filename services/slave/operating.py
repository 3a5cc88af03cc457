"""What operators ask of a slave: to stand for election, and to pause automatic failover."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dittomq.broker.candidate import Candidate
from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.pausing import set_paused
from dittomq.errors import InvalidField, NotMaster, PreconditionFailed
from dittomq.group_record import GroupRecord
from dittomq.replication.election_events import Position, SentBy, StandOrder
from dittomq.wire.admin import FailoverAnswer, FailoverOrder, HaChange, PauseOrder, SwitchoverAnswer, SwitchoverOrder


@dataclass(frozen=True, slots=True)
class SlaveOperator:
    """The operator's calls, as a slave answers them. `watch` and `candidate` are None where no group record is kept.

    `master` tells where clients reach the master, "" while that is unknown; `prepare` raises what would keep this node from taking writes.
    """

    node: str
    master: Callable[[], str]
    watch: GroupWatch | None
    candidate: Candidate | None
    prepare: Callable[[], Awaitable[None]]

    async def switchover(self, order: SwitchoverOrder) -> SwitchoverAnswer:
        """Only the master switches over."""
        raise NotMaster(self.node, self.master())

    async def failover(self, order: FailoverOrder) -> FailoverAnswer:
        """Stand for election, whoever is silent. Raises PreconditionFailed, and changes nothing, where no election can be won as things
        are.
        """
        if order.node != self.node:
            raise InvalidField("node", f'this is {self.node}, not "{order.node}"')
        if self.watch is None or self.candidate is None:
            raise PreconditionFailed(f"refused: replicas_expected of {self.node} is 0, so its group has no record and no elections")
        await self.prepare()
        await self.watch.read()
        if self.watch.problem:
            raise PreconditionFailed(f"refused: {self.watch.problem}")
        own, found = await self.candidate.position(), await self.candidate.look_around()
        answer = _foreseen(self.watch.record, own, found, allow_data_loss=order.allow_data_loss)
        if not order.validate_only:
            await self.candidate.stand(StandOrder(SentBy.OPERATOR, order.allow_data_loss))
        return answer

    async def set_paused(self, order: PauseOrder) -> bool:
        """Whether the flag was changed."""
        if self.watch is None:
            raise PreconditionFailed(f"refused: replicas_expected of {self.node} is 0, so its group has no record and no failover")
        return await set_paused(self.watch, order)

    async def history(self) -> tuple[HaChange, ...]:
        """Only the master notes it."""
        raise NotMaster(self.node, self.master())


def _foreseen(record: GroupRecord | None, own: Position, found: dict[str, Position], *, allow_data_loss: bool) -> FailoverAnswer:
    """What an election would do with the replicas that answer now."""
    if record is None:
        if not allow_data_loss:
            return FailoverAnswer(own.promised, "", ())
        return FailoverAnswer(own.promised, f"what only replicas hold that do not answer, behind {own.log_end:,}", (), own.log_end)
    answering = {position.replica for position in (own, *found.values()) if _is_under_its_name(record, position)}
    silent = tuple(member.node for member in record.members if member.replica not in answering)
    is_member = record.member(own.replica) is not None
    if is_member and record.is_quorum(answering):
        return FailoverAnswer(record.epoch, "", silent)
    silent_names = ", ".join(silent)
    why = f"too few members answer without {silent_names}" if is_member else "it is not a member of the in-sync set"
    if not allow_data_loss:
        start = silent_names or record.master_node
        raise PreconditionFailed(f"refused: {own.node} cannot be elected: {why}; start {start}, or add --allow-data-loss")
    return FailoverAnswer(record.epoch, f"{why}: acknowledged messages above {own.log_end:,} may be lost", silent, own.log_end)


def _is_under_its_name(record: GroupRecord, position: Position) -> bool:
    member = record.member(position.replica)
    return member is not None and member.node == position.node
