"""What members of consumer groups ask of a master."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.leases import LeaseToken
from dittomq.wire.consumer_leases import Leased, ReceiveOrder
from dittomq.wire.consumer_sessions import JoinFrame, LockOrder, SendBackOrder, SentBack
from services.master.group_coordinator import GroupCoordinator, SendAnswer
from services.master.leasing import Leasing
from services.master.send_back import SendBack


@dataclass(frozen=True, slots=True)
class MasterMembers:
    """Members and their locks, messages that come again, and leases."""

    coordinator: GroupCoordinator
    returns: SendBack
    leasing: Leasing

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

    def receive(self, order: ReceiveOrder, connection: str) -> AbstractAsyncContextManager[Sequence[Leased]]:
        """Lease messages, counted as unread until the block ends."""
        return self.leasing.receive(order, connection)

    async def acknowledge(self, group: str, tokens: Sequence[LeaseToken]) -> Sequence[bool]:
        """Whether each is acknowledged."""
        return await self.leasing.acknowledge(group, tokens)

    async def extend(self, group: str, token: LeaseToken, lease_s: float) -> None:
        """Let a lease last longer."""
        await self.leasing.extend(group, token, lease_s)
