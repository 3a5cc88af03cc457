"""What operators ask of a master: to switch over, to pause automatic failover, and what has changed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.pausing import set_paused
from dittomq.errors import InvalidField, PreconditionFailed
from dittomq.wire.admin import FailoverAnswer, FailoverOrder, HaChange, PauseOrder, SwitchoverAnswer, SwitchoverOrder
from services.master.history import HaHistory


@dataclass(frozen=True, slots=True)
class MasterOperator:
    """The operator's calls, as a master answers them. `watch` is None where no group record is kept."""

    node: str
    watch: GroupWatch | None
    history_of: HaHistory
    give_away: Callable[[SwitchoverOrder], Awaitable[SwitchoverAnswer]]

    async def switchover(self, order: SwitchoverOrder) -> SwitchoverAnswer:
        """Give this master's place to a member that streams. Raises PreconditionFailed, NotReady, Unavailable: then this master leads
        on.
        """
        return await self.give_away(order)

    async def failover(self, order: FailoverOrder) -> FailoverAnswer:
        """A master that leads does not stand for election."""
        if order.node != self.node:
            raise InvalidField("node", f'this is {self.node}, not "{order.node}"')
        raise PreconditionFailed(f"refused: {self.node} leads already")

    async def set_paused(self, order: PauseOrder) -> bool:
        """Whether the flag was changed."""
        if self.watch is None:
            raise PreconditionFailed(f"refused: replicas_expected of {self.node} is 0, so its group has no record and no failover")
        return await set_paused(self.watch, order)

    async def history(self) -> tuple[HaChange, ...]:
        """The last changes of the group record, oldest first."""
        return self.history_of.changes
