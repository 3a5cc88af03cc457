"""Managing consumer groups and their offsets: one call here is one call on each broker group, with one result for each."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dittomq._pb.ditto.admin.v1 import groups_pb2 as pb
from dittomq._pb.ditto.admin.v1.groups_pb2_grpc import GroupServiceStub
from dittomq._pb.ditto.messaging.v1.consumer_groups_pb2_grpc import ConsumerGroupServiceStub
from dittomq.client.group_result import GroupResult
from dittomq.client.routing import ClientContext
from dittomq.consumer.dead_letters import DeadLetterPage, DeadLetterQuery, ReplayOrder, ReplayResult
from dittomq.consumer_progress import CommittedOffset, GroupProgress, OffsetCommit, QueueReset, ResetOrder
from dittomq.errors import GroupNotFound, NotMaster, Unavailable
from dittomq.metadata.groups import GroupUpdate, check_group_name, check_new_group
from dittomq.metadata.rows import GroupConfig
from dittomq.routes import Node, Role
from dittomq.rpc.channel import call
from dittomq.wire import consumer_groups as offsets_wire
from dittomq.wire import dead_letters as letters_wire
from dittomq.wire import groups as wire

T = TypeVar("T")

_DEADLINE_S: Final = 5.0
_CONFIRMED_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CreatedGroup:
    """The consumer group as it is; `created` False: it was there with equal settings."""

    group: GroupConfig
    created: bool


@dataclass(frozen=True, slots=True)
class UpdatedGroup:
    """The consumer group as it is; `changed` False: it had these settings before."""

    group: GroupConfig
    changed: bool


class GroupAdmin(ABC):
    """The part of `Admin` that knows consumer groups."""

    def __init__(self, around: ClientContext) -> None:
        self._around = around

    @abstractmethod
    async def _on_masters(self, ask: Callable[[Node], Awaitable[T]], broker: str | None) -> list[GroupResult[T]]: ...

    @abstractmethod
    async def _on_any(self, ask: Callable[[Node], Awaitable[T]], broker: str | None) -> list[GroupResult[T]]: ...

    async def create_group(self, group: str | GroupConfig, *, broker: str | None = None) -> list[GroupResult[CreatedGroup]]:
        """Create the consumer group in every broker group, or in one; a name stands for a group with RocketMQ's defaults."""
        config = GroupConfig(group) if isinstance(group, str) else group
        check_new_group(config)
        request = pb.CreateGroupRequest(group=wire.group_to_pb(config))

        async def create(node: Node) -> CreatedGroup:
            response: pb.CreateGroupResponse = await self._of_groups(node, "CreateGroup", request)
            return CreatedGroup(wire.group_from_pb(response.group), response.created)

        return await self._on_masters(create, broker)

    async def update_group(self, update: GroupUpdate, *, broker: str | None = None) -> list[GroupResult[UpdatedGroup]]:
        """Change `fields` of the consumer group in every broker group, or in one. One without the group answers GroupNotFound."""
        check_new_group(update.group)
        request = wire.update_group_request(update)

        async def change(node: Node) -> UpdatedGroup:
            response: pb.UpdateGroupResponse = await self._of_groups(node, "UpdateGroup", request)
            return UpdatedGroup(wire.group_from_pb(response.group), response.changed)

        return await self._on_masters(change, broker)

    async def delete_group(self, name: str, *, broker: str | None = None) -> list[GroupResult[None]]:
        """Delete the consumer group and its offsets in every broker group, or in one. One without it answers GroupNotFound."""
        check_group_name(name)

        async def delete(node: Node) -> None:
            await self._of_groups(node, "DeleteGroup", pb.DeleteGroupRequest(name=name))

        return await self._on_masters(delete, broker)

    async def list_groups(self, *, broker: str | None = None) -> list[GroupResult[tuple[GroupConfig, ...]]]:
        """Consumer groups of every broker group, by name, from its master or, while that does not answer, a slave."""
        return await self._on_any(self._groups_of, broker)

    async def describe_group(self, name: str, *, broker: str | None = None) -> list[GroupResult[GroupConfig]]:
        """The consumer group in every broker group that has it; raises GroupNotFound when none has it."""
        check_group_name(name)

        async def describe(node: Node) -> GroupConfig:
            response: pb.GetGroupResponse = await _known(node, self._of_groups(node, "GetGroup", pb.GetGroupRequest(name=name)), name)
            return wire.group_from_pb(response.group)

        return _with_group(await self._on_any(describe, broker))

    async def get_offsets(
        self, group: str, queues: Sequence[tuple[str, int]], *, broker: str | None = None
    ) -> list[GroupResult[list[CommittedOffset]]]:
        """What the consumer group has committed of each (topic, queue), at most 1,024, in every broker group, or in one."""
        request = offsets_wire.get_offsets_request(group, queues)

        async def get(node: Node) -> list[CommittedOffset]:
            return offsets_wire.committed_offsets(await _known(node, self._of_consumers(node, "GetOffsets", request), group))

        return await self._on_any(get, broker)

    async def commit_offsets(self, group: str, commits: Sequence[OffsetCommit], *, broker: str) -> list[GroupResult[list[CommittedOffset]]]:
        """Record how far the consumer group has read queues of one broker group, at most 1,024; tells what is recorded now.

        While the master is away a slave takes it, from 30 s after it lost its stream on.
        """
        request = offsets_wire.commit_offsets_request(group, commits)

        async def commit(node: Node) -> list[CommittedOffset]:
            try:
                return offsets_wire.committed_offsets(await self._of_consumers(node, "CommitOffsets", request))
            except NotMaster as refused:
                if node.role is not Role.SLAVE:
                    raise
                raise Unavailable(f"the master of {node.broker}", f"{node.name} has a master, or lost it a moment ago") from refused

        return await self._on_any(commit, broker)

    async def group_progress(self, group: str, topic: str = "", *, broker: str | None = None) -> list[GroupResult[GroupProgress]]:
        """How far the consumer group is behind, queue by queue, in one topic or in all of its own, in every broker group or in one."""
        request = pb.GetProgressRequest(group=group, topic=topic)

        async def get(node: Node) -> GroupProgress:
            return wire.group_progress(await _known(node, self._of_groups(node, "GetProgress", request), group))

        return _with_group(await self._on_any(get, broker))

    async def reset_offsets(self, order: ResetOrder, *, broker: str | None = None) -> list[GroupResult[list[QueueReset]]]:
        """Move offsets of the consumer group in a topic, in every broker group, or in one; PreconditionFailed while it has members."""
        request = wire.reset_request(order)

        async def reset(node: Node) -> list[QueueReset]:
            return wire.queue_resets(await self._of_groups(node, "ResetOffsets", request))

        return await self._on_masters(reset, broker)

    async def list_dead_letters(self, query: DeadLetterQuery, *, broker: str | None = None) -> list[GroupResult[DeadLetterPage]]:
        """A page of what the consumer group has given up, of each broker group that has the group, or of one; a page token is one's own.

        Raises GroupNotFound when none has it.
        """
        check_group_name(query.group)
        request = letters_wire.letters_request(query)

        async def page(node: Node) -> DeadLetterPage:
            return letters_wire.letter_page(await _known(node, self._of_groups(node, "ListDeadLetters", request), query.group))

        return _with_group(await self._on_any(page, broker))

    async def replay_dead_letters(self, order: ReplayOrder, *, broker: str | None = None) -> list[GroupResult[ReplayResult]]:
        """Let the consumer group read dead letters once more: a page, or one, in each broker group that has the group, or in one.

        An answer tells what is confirmed. After Unavailable nobody knows, but for ConnectionRefused: repeated, members get some twice.
        Raises GroupNotFound when no broker group has it.
        """
        check_group_name(order.query.group)
        request = letters_wire.replay_request(order)

        async def replay(node: Node) -> ReplayResult:
            return letters_wire.replay_result(await self._of_groups(node, "ReplayDeadLetters", request, _CONFIRMED_WITHIN_S))

        return _with_group(await self._on_masters(replay, broker))

    async def _groups_of(self, node: Node) -> tuple[GroupConfig, ...]:
        groups: list[GroupConfig] = []
        token = ""
        while True:
            page, token = wire.listed_groups(await self._of_groups(node, "ListGroups", wire.list_groups_request(token)))
            groups += page
            if not token:
                return tuple(groups)

    async def _of_groups(self, node: Node, method: str, request: object, deadline_s: float = _DEADLINE_S) -> Any:
        return await self._ask(GroupServiceStub, node, method, request, deadline_s=deadline_s)

    async def _of_consumers(self, node: Node, method: str, request: object) -> Any:
        return await self._ask(ConsumerGroupServiceStub, node, method, request)

    async def _ask(self, service: Any, node: Node, method: str, request: object, *, deadline_s: float = _DEADLINE_S) -> Any:
        channels, address = self._around.channels, self._around.routing.address(node)
        stub: Any = channels.stub(service, address)
        return await call(
            getattr(stub, method),
            request,
            who=f"{node.name} at {address}",
            deadline_s=deadline_s,
            patient=channels.backs_off(address),
            node=node,
        )


async def _known(node: Node, asked: Awaitable[T], group: str) -> T:
    """A slave hears of groups later than its master, which was asked before it: that it knows none says nothing."""
    try:
        return await asked
    except GroupNotFound as unknown:
        if node.role is not Role.SLAVE:
            raise
        raise Unavailable(f"the master of {node.broker}", f'{node.name} answers, and does not know group "{group}"') from unknown


def _with_group(results: list[GroupResult[T]]) -> list[GroupResult[T]]:
    """Results of the broker groups that have the consumer group; raises GroupNotFound when none has it."""
    missing = [result.error for result in results if isinstance(result.error, GroupNotFound)]
    if missing and len(missing) == len(results):
        similar = next((error.similar for error in missing if error.similar), "")
        raise missing[0] if len(missing) == 1 else GroupNotFound(missing[0].group, "any broker group", similar)
    return [result for result in results if not isinstance(result.error, GroupNotFound)]
