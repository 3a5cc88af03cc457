"""A member of a consumer group whose every frame a test decides, over the RPC itself."""

import asyncio
from typing import Any

from dittomq._pb.ditto.messaging.v1 import consumer_sessions_pb2 as pb
from dittomq._pb.ditto.messaging.v1.consumer_groups_pb2_grpc import ConsumerGroupServiceStub
from dittomq.client import AsyncClient
from dittomq.consumer.assignment import Strategy, TopicQueue
from dittomq.consumer.group_session import ConsumeMode, JoinOrder, QueueAssignment
from dittomq.rpc.channel import breaking, call
from dittomq.wire import consumer_sessions as wire


def service_at(mq: AsyncClient, address: str) -> Any:
    """ConsumerGroupService of the node there."""
    return mq.admin._around.channels.stub(ConsumerGroupServiceStub, address)  # noqa: SLF001


async def asked(mq: AsyncClient, address: str, method: str, request: object) -> Any:
    """The answer; a refusal is raised as the DittoError that it is."""
    return await call(getattr(service_at(mq, address), method), request, who=address, deadline_s=5)


async def sent_back(
    mq: AsyncClient, place: TopicQueue, offset: int, level: int | None = None, *, address: str = "a0:10911"
) -> wire.SentBack:
    """Send a message of group "billing" back."""
    request = wire.send_back_request(wire.SendBackOrder("billing", place, offset, level))
    return wire.sent_back(await asked(mq, address, "SendBack", request))


class HandHeldMember:
    """One stream. `answers` are all that came; `given` is the newest assignment."""

    def __init__(self, mq: AsyncClient, member: str, *, group: str = "billing", process: str = "", address: str = "a0:10911") -> None:
        self.member = member
        self.group = group
        self.process = process or f"process of {member}".replace(" ", "-")
        self.given: QueueAssignment | None = None
        self.answers: list[wire.JoinAnswer] = []
        self._address = address
        self._number = 0
        self._stream: Any = service_at(mq, address).Join()

    @property
    def queues(self) -> list[int]:
        """Those of "orders" that it may read."""
        return [] if self.given is None else sorted(each.queue for each in self.given.queues if each.topic == "orders")

    async def join(self, **order: Any) -> "HandHeldMember":
        """Come in, and hear the first assignment. Raises what refuses it."""
        defaults: dict[str, Any] = {"subscriptions": {"orders": "*"}, "mode": ConsumeMode.CLUSTERING, "strategy": Strategy.AVERAGE}
        await self._say(order=JoinOrder(self.member, self.process, **{**defaults, **order}))
        await self.hear()
        return self

    async def beat(self, generation: int | None = None) -> None:
        """Say that it lives, and has put an assignment into effect: the newest unless told otherwise."""
        assert self.given is not None
        await self._say(generation=self.given.generation if generation is None else generation)

    async def leave(self) -> None:
        """Read nothing any more, and hear that the master knows it."""
        await self._say(leaves=True)
        await self.hear_all()

    async def hear(self) -> wire.JoinAnswer | None:
        """The next answer; None at the end of the stream."""
        with breaking(self._address, None):
            response = await self._stream.read()
        if not isinstance(response, pb.JoinResponse):
            return None
        answer = wire.join_answer(response)
        self.answers.append(answer)
        self.given = answer.assignment or self.given
        return answer

    async def hear_until(self, queues: list[int]) -> None:
        """Listen until it is told these queues of "orders", and say nothing."""
        while self.queues != queues:
            assert await self.hear() is not None, "the stream has ended"

    async def live_until(self, queues: list[int]) -> None:
        """Say each second that it lives and obeys, until it has these queues of "orders"."""
        while self.queues != queues:
            await asyncio.sleep(1)
            await self.beat()
            await self.answered()

    async def answered(self) -> None:
        """Listen until the master has seen all that it said."""
        while not self.answers or self.answers[-1].answered < self._number:
            assert await self.hear() is not None, "the stream has ended"

    async def hear_all(self) -> None:
        """Listen until the stream ends; raises what ends it."""
        while await self.hear() is not None:
            pass

    def vanish(self) -> None:
        """The stream breaks, and nobody has left."""
        self._stream.cancel()

    async def _say(self, **frame: Any) -> None:
        self._number += 1
        with breaking(self._address, None):
            await self._stream.write(wire.join_request(wire.JoinFrame(self._number, self.group, **frame)))
