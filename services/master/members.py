"""What members of consumer groups ask of a master."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from dittomq.consumer.assignment import TopicQueue
from dittomq.wire.consumer_sessions import JoinFrame, LockOrder, SendBackOrder, SentBack
from services.master.group_coordinator import GroupCoordinator, SendAnswer
from services.master.send_back import SendBack


@dataclass(frozen=True, slots=True)
class MasterMembers:
    """Members and their locks, and messages that come again."""

    coordinator: GroupCoordinator
    returns: SendBack

    async def join(self, frames: AsyncIterator[JoinFrame], send: SendAnswer) -> None:
        """Serve one stream of a member until it ends."""
        await self.coordinator.join(frames, send)

    async def send_back(self, order: SendBackOrder) -> SentBack:
        """Store a copy for another try."""
        return await self.returns.send_back(order)

    async def lock(self, order: LockOrder) -> frozenset[TopicQueue]:
        """Lock queues."""
        return self.coordinator.lock(order)

    async def unlock(self, order: LockOrder) -> None:
        """Free queues."""
        self.coordinator.unlock(order)
