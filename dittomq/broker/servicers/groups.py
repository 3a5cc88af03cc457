"""GroupService: reads from this node, changes from the master's part or the slave's."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.admin.v1 import groups_pb2 as pb
from dittomq._pb.ditto.admin.v1 import groups_pb2_grpc
from dittomq.broker.dead_letters import DeadLetterReads, DeadLetterReplays
from dittomq.broker.group_progress import OffsetResets, ProgressReads
from dittomq.broker.groups import GroupChanges, GroupReads
from dittomq.rpc.admission import AdmissionControl
from dittomq.wire import dead_letters as letters_wire
from dittomq.wire import groups as wire

Context = grpc.aio.ServicerContext[Any, Any]


class GroupServicer(groups_pb2_grpc.GroupServiceServicer):
    """`changes` is what makes it a master's or a slave's. What may be long is yielded, see CallInterceptor."""

    def __init__(  # what it is made of
        self,
        reads: GroupReads,
        changes: GroupChanges,
        room: AdmissionControl,
        *,
        progress: ProgressReads,
        resets: OffsetResets,
        letters: DeadLetterReads,
        replays: DeadLetterReplays,
    ) -> None:
        self._reads = reads
        self._changes = changes
        self._room = room
        self._progress = progress
        self._resets = resets
        self._letters = letters
        self._replays = replays

    async def CreateGroup(self, request: pb.CreateGroupRequest, context: Context) -> pb.CreateGroupResponse:
        group, created = await self._changes.create(wire.group_from_pb(request.group), request.validate_only)
        return pb.CreateGroupResponse(group=wire.group_to_pb(group), created=created)

    async def GetGroup(self, request: pb.GetGroupRequest, context: Context) -> pb.GetGroupResponse:
        return pb.GetGroupResponse(group=wire.group_to_pb(self._reads.get(request.name)))

    async def ListGroups(  # type: ignore[override]
        self, request: pb.ListGroupsRequest, context: Context
    ) -> AsyncIterator[pb.ListGroupsResponse]:
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.list_groups_response(self._reads.list(wire.group_page_size(request), request.page_token)))

    async def UpdateGroup(self, request: pb.UpdateGroupRequest, context: Context) -> pb.UpdateGroupResponse:
        group, changed = await self._changes.update(wire.group_update(request), request.validate_only)
        return pb.UpdateGroupResponse(group=wire.group_to_pb(group), changed=changed)

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, context: Context) -> pb.DeleteGroupResponse:
        await self._changes.delete(request.name, request.validate_only)
        return pb.DeleteGroupResponse()

    async def GetProgress(  # type: ignore[override]
        self, request: pb.GetProgressRequest, context: Context
    ) -> AsyncIterator[pb.GetProgressResponse]:
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.progress_response(await self._progress.get(request.group, request.topic)))

    async def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: Context) -> pb.ResetOffsetsResponse:
        return wire.reset_response(await self._resets.reset(wire.reset_order(request)))

    async def ListDeadLetters(  # type: ignore[override]
        self, request: pb.ListDeadLettersRequest, context: Context
    ) -> AsyncIterator[pb.ListDeadLettersResponse]:
        query = letters_wire.letter_query(request)
        async with self._room.page(context.peer()) as share:
            yield share.of(letters_wire.letters_response(await self._letters.page(query), prefer_text=request.prefer_text))

    async def ReplayDeadLetters(  # type: ignore[override]
        self, request: pb.ReplayDeadLettersRequest, context: Context
    ) -> AsyncIterator[pb.ReplayDeadLettersResponse]:
        order = letters_wire.replay_order(request)
        async with self._room.page(context.peer()) as share:  # for the copies, until they are confirmed
            yield share.of(letters_wire.replay_response(await self._replays.replay(order)))
