"""Managing a cluster: one call here is one call on each broker group, with one result for each.

What was done in part can be asked for again until it is done in all groups. A node that was away when it was last called gets
the call's deadline to be reached again; nothing is sent twice.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc.aio

from dittomq._pb.ditto.admin.v1 import admin_pb2 as pb
from dittomq._pb.ditto.admin.v1.admin_pb2_grpc import BrokerServiceStub, TopicServiceStub
from dittomq.client.group_admin import GroupAdmin
from dittomq.client.group_result import GroupResult
from dittomq.client.routing import ClientContext
from dittomq.client.validation import check_number, is_address
from dittomq.copies import RepairReport, RepairRequest
from dittomq.errors import DittoError, InvalidField, NotReady, TopicNotFound, Unavailable
from dittomq.ha_status import HaStatus
from dittomq.metadata.topics import QueueStatus, TopicConfig, TopicUpdate, check_new_topic, check_topic_name
from dittomq.offsets import PhysicalOffset
from dittomq.routes import PERMISSION_WRITE, Node, QueueRange, Role
from dittomq.rpc.channel import breaking, call
from dittomq.wire import admin as wire
from dittomq.wire.admin import (
    BrokerDescription,
    FailoverAnswer,
    FailoverOrder,
    HaChange,
    PauseOrder,
    SwitchoverAnswer,
    SwitchoverOrder,
)

T = TypeVar("T")

_DEADLINE_S: Final = 5.0
_ROLE_DEADLINE_S: Final = 30.0  # a slave that hears nothing of its master gives up before
_REPAIR_DEADLINE_S: Final = 600.0
_SILENCE_S: Final = 15.0
_ROUTE_WAIT_S: Final = 3.0
_FIRST_ROUTE_POLL_S: Final = 0.005
_MAX_ROUTE_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The topic as it is; `created` False: it was there with equal settings."""

    topic: TopicConfig
    created: bool


@dataclass(frozen=True, slots=True)
class UpdatedTopic:
    """The topic as it is; `changed` False: it had these settings before."""

    topic: TopicConfig
    changed: bool


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its queues as `node` holds them."""

    node: str
    topic: TopicConfig
    queues: tuple[QueueStatus, ...]


@dataclass(frozen=True, slots=True)
class NameserverResult:
    """What one nameserver did: how many `topics` it knows of the group, or the `error` with which it did nothing."""

    nameserver: str
    topics: int | None
    error: DittoError | None


class Admin(GroupAdmin):
    """Topics, consumer groups, nodes and roles of one cluster."""

    def __init__(self, around: ClientContext) -> None:
        super().__init__(around)

    async def create_topic(self, name: str, queues: int = 8, *, broker: str | None = None) -> list[GroupResult[CreatedTopic]]:
        """Create the topic in every group, or in one. Afterwards nameservers know it, if they hear of it within 3 s."""
        topic = TopicConfig(name, queues, queues)
        check_new_topic(topic)
        request = pb.CreateTopicRequest(topic=wire.topic_to_pb(topic))

        async def create(node: Node) -> CreatedTopic:
            response: pb.CreateTopicResponse = await self._topics(node, "CreateTopic", request)
            return CreatedTopic(wire.topic_from_pb(response.topic), response.created)

        results = await self._on_masters(create, broker)
        await self._await_route(name, {result.broker: result.value.topic for result in results if result.value is not None})
        return results

    async def update_topic(  # settings
        self,
        name: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: int | None = None,
        broker: str | None = None,
    ) -> list[GroupResult[UpdatedTopic]]:
        """Change what is given of the topic in every group, or in one: `permission` is 4 (read), 2 (write) or 6 (both).

        Queues that may hold messages stay readable. A group without the topic answers TopicNotFound. Afterwards nameservers know it, as
        with a new topic; other clients ask for their route every 30 s.
        """
        given = {"read_queues": read_queues, "write_queues": write_queues, "permission": permission}
        settings: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
        topic = TopicConfig(name, **settings)
        check_new_topic(topic)
        request = wire.update_topic_request(TopicUpdate(topic, tuple(settings)))

        async def update(node: Node) -> UpdatedTopic:
            response: pb.UpdateTopicResponse = await self._topics(node, "UpdateTopic", request)
            return UpdatedTopic(wire.topic_from_pb(response.topic), response.changed)

        results = await self._on_masters(update, broker)
        await self._await_route(name, {result.broker: result.value.topic for result in results if result.value is not None})
        return results

    async def delete_topic(self, name: str, *, broker: str | None = None) -> list[GroupResult[None]]:
        """Delete the topic in every group, or in one. A group without it answers TopicNotFound."""
        check_topic_name(name)

        async def delete(node: Node) -> None:
            await self._topics(node, "DeleteTopic", pb.DeleteTopicRequest(name=name))

        return await self._on_masters(delete, broker)

    async def list_topics(self, *, broker: str | None = None) -> list[GroupResult[tuple[TopicConfig, ...]]]:
        """Topics of every group, by name, from its master or, while that does not answer or recovers without its tables, a slave."""
        return await self._on_any(self._topics_of, broker)

    async def describe_topic(self, name: str, *, broker: str | None = None) -> list[GroupResult[TopicDescription]]:
        """The topic in every group that has it; raises TopicNotFound when none has it."""
        check_topic_name(name)

        async def describe(node: Node) -> TopicDescription:
            try:
                response: pb.GetTopicResponse = await self._topics(node, "GetTopic", pb.GetTopicRequest(name=name))
            except TopicNotFound as unknown:
                if node.role is not Role.SLAVE:
                    raise
                # It hears of topics later than its master, which was asked before it.
                problem = f'{node.name} answers, and does not know topic "{name}"'
                raise Unavailable(f"the master of {node.broker}", problem) from unknown
            return TopicDescription(node.name, *wire.topic_and_queues(response))

        results = await self._on_any(describe, broker)
        missing = [result.error for result in results if isinstance(result.error, TopicNotFound)]
        if missing and len(missing) == len(results):
            similar = next((error.similar for error in missing if error.similar), "")
            raise missing[0] if len(missing) == 1 else TopicNotFound(name, "any broker group", similar)
        return [result for result in results if not isinstance(result.error, TopicNotFound)]

    async def list_brokers(self) -> list[Node]:
        """All nodes that a nameserver knows now, in the order of broker name and id."""
        return await self._around.routing.brokers()

    async def ha_status(self, node: str) -> HaStatus:
        """The view of one node, "broker/id" or "host:port", of its group's replication."""
        response: pb.GetHaStatusResponse = await self._on_node(node, "GetHaStatus", pb.GetHaStatusRequest())
        return wire.ha_status(response)

    async def watch_ha_status(self, node: str, *, period_s: float = 0.5) -> AsyncGenerator[HaStatus, None]:
        """The view of one node at once, then again when it has changed, at most once in `period_s`, and every 5 s when it has not.

        Ends when the node stops; raises Unavailable when it is gone or was silent for 15 s, or when nothing was read here for 30 s.
        """
        address, _ = await self._find(node)
        stub: Any = self._around.channels.stub(BrokerServiceStub, address)
        stream = stub.WatchHaStatus(wire.watch_request(period_s))
        try:
            while (response := await _next(stream, node)) is not grpc.aio.EOF:
                yield wire.ha_status(response.status)
        finally:
            stream.cancel()

    async def get_broker(self, node: str) -> BrokerDescription:
        """What a node, "broker/id" or "host:port", is and how it is configured."""
        response: pb.GetBrokerResponse = await self._on_node(node, "GetBroker", pb.GetBrokerRequest())
        return wire.broker_description(response)

    async def switchover(self, node: str, *, validate_only: bool = False) -> SwitchoverAnswer:
        """Let the slave "broker/id" take its master's place; it is sent to be elected when this returns, and `ha_status` tells the outcome.

        Raises PreconditionFailed, which says what is missing, NotReady, or Unavailable, after which the switchover may still happen.
        """
        order = SwitchoverOrder(node, validate_only)
        master = await self._master_of(node.partition("/")[0])
        response: pb.SwitchoverResponse = await self._on_node(master, "Switchover", wire.switchover_request(order), _ROLE_DEADLINE_S)
        return wire.switchover_answer(response)

    async def failover(self, node: str, *, allow_data_loss: bool = False, validate_only: bool = False) -> FailoverAnswer:
        """Let a node, "broker/id", stand for election; it stands when this returns, and `ha_status` tells the outcome.

        With `allow_data_loss` it is elected also where only replicas that do not answer may have acknowledged messages. Raises
        PreconditionFailed, which says why it cannot be elected.
        """
        order = FailoverOrder(node, allow_data_loss, validate_only)
        response: pb.FailoverResponse = await self._on_node(node, "Failover", wire.failover_request(order), _ROLE_DEADLINE_S)
        return wire.failover_answer(response)

    async def set_paused(self, broker: str, *, paused: bool, validate_only: bool = False) -> bool:
        """Stop or start automatic failover of a group; whether that changed anything. Any node of the group takes it."""
        order = PauseOrder(broker, paused, validate_only)
        nodes = (await self._groups(broker))[broker]
        problem: DittoError = Unavailable(f"any node of {broker}", "none is registered")
        for node in nodes:
            try:
                response: pb.SetPausedResponse = await self._on_node(node.name, "SetPaused", wire.set_paused_request(order))
            except (Unavailable, NotReady) as silent:
                problem = silent
            else:
                return response.changed
        raise problem

    async def ha_history(self, broker: str) -> list[HaChange]:
        """The last changes of a group's record, oldest first, as its master noted them."""
        address, _ = await self._find(await self._master_of(broker))
        stub: Any = self._around.channels.stub(BrokerServiceStub, address)
        changes: list[HaChange] = []
        with breaking(address):
            async for response in stub.GetHaHistory(pb.GetHaHistoryRequest(), timeout=_DEADLINE_S):
                changes += wire.ha_changes(response)
        return changes

    async def set_writable(self, broker: str, *, writable: bool) -> list[NameserverResult]:
        """Let routes name the group for writing, or not, until it is given back: one result for each nameserver, which keeps it.

        Producers whose route is older go on for up to 30 s. Whoever publishes to a queue or by an order key of that group only is refused
        then; other messages go to other groups. Raises Unavailable when no nameserver answers.
        """
        outcomes = await self._around.routing.set_writable(broker, writable=writable)
        return [
            NameserverResult(nameserver, None, outcome) if isinstance(outcome, DittoError) else NameserverResult(nameserver, outcome, None)
            for nameserver, outcome in outcomes.items()
        ]

    async def _master_of(self, broker: str) -> str:
        """Its name, as nameservers know it now."""
        nodes = (await self._groups(broker))[broker]
        master = next((node.name for node in nodes if node.role is not Role.SLAVE), None)
        if master is None:
            raise Unavailable(f"the master of {broker}", "no nameserver knows one now; see dittomq ha status")
        return master

    async def repair(self, node: str, start: int | None = None, end: int | None = None, *, validate_only: bool = False) -> RepairReport:
        """Let the node "broker/id" verify a piece of its log from `start` on, and fetch what is damaged there from other copies.

        Go on from the report's end until it is done. With `validate_only` it is only told what would be verified, and what is known to be
        damaged of that.
        """
        for field, place in (("start", start), ("end", end)):
            if place is not None:
                check_number(field, place, 64)
        low, high = (None if place is None else PhysicalOffset(place) for place in (start, end))
        order = RepairRequest(node, low, high, validate_only)
        response: pb.RepairResponse = await self._on_node(node, "Repair", wire.repair_request(order), _REPAIR_DEADLINE_S)
        return wire.repair_report(response)

    async def _on_masters(self, ask: Callable[[Node], Awaitable[T]], broker: str | None) -> list[GroupResult[T]]:
        groups = await self._groups(broker)
        return await _results({name: [node for node in nodes if node.role is not Role.SLAVE] for name, nodes in groups.items()}, ask)

    async def _on_any(self, ask: Callable[[Node], Awaitable[T]], broker: str | None) -> list[GroupResult[T]]:
        def backs_off(node: Node) -> bool:
            return self._around.channels.backs_off(self._around.routing.address(node))

        groups = await self._groups(broker)
        return await _results({name: sorted(nodes, key=backs_off) for name, nodes in groups.items()}, ask)

    async def _groups(self, broker: str | None) -> dict[str, list[Node]]:
        """Nodes by group, the master first; of several that say to be one the newest only."""
        groups: dict[str, list[Node]] = {}
        for node in await self.list_brokers():
            if broker is None or node.broker == broker:
                group = groups.setdefault(node.broker, [])
                if not group or node.role is Role.SLAVE:
                    group.append(node)
        if broker is not None and not groups:
            raise InvalidField("broker", f'"{broker}" is not registered with any nameserver; list them: dittomq cluster')
        if not groups:
            raise Unavailable("any broker", "none is registered with the nameserver")
        return dict(sorted(groups.items()))

    async def _topics_of(self, node: Node) -> tuple[TopicConfig, ...]:
        topics: list[TopicConfig] = []
        token = ""
        while True:
            response: pb.ListTopicsResponse = await self._topics(node, "ListTopics", wire.list_topics_request(token))
            page = wire.topic_page(response)
            topics += page.topics
            token = page.next_page_token
            if not token:
                return tuple(topics)

    async def _topics(self, node: Node, method: str, request: object) -> Any:
        address = self._around.routing.address(node)
        stub: Any = self._around.channels.stub(TopicServiceStub, address)
        return await call(
            getattr(stub, method),
            request,
            who=f"{node.name} at {address}",
            deadline_s=_DEADLINE_S,
            patient=self._around.channels.backs_off(address),
            node=node,
        )

    async def _on_node(self, node: str, method: str, request: object, deadline_s: float = _DEADLINE_S) -> Any:
        address, known = await self._find(node)
        channels = self._around.channels
        stub: Any = channels.stub(BrokerServiceStub, address)
        patient = channels.backs_off(address)
        if patient and deadline_s > _DEADLINE_S:  # for a node that was away nobody waits longer than the shortest call does
            await call(stub.GetBroker, pb.GetBrokerRequest(), who=node, deadline_s=_DEADLINE_S, patient=True, node=known)
            patient = False
        return await call(getattr(stub, method), request, who=node, deadline_s=deadline_s, patient=patient, node=known)

    async def _find(self, node: str) -> tuple[str, Node | None]:
        """Its address, and what nameservers say of it; None of one that is called by its address."""
        if is_address(node):
            return node, None
        nodes = await self.list_brokers()
        for known in nodes:
            if known.name == node:
                return self._around.routing.address(known), known
        names = ", ".join(known.name for known in nodes) or "none"
        raise InvalidField("node", f'"{node}" is not registered with any nameserver; registered: {names}')

    async def _await_route(self, topic: str, expected: dict[str, TopicConfig]) -> None:
        """Brokers tell nameservers a moment after they have answered: who publishes next should find the topic as it is.

        A slave may tell them before its master does; until then nobody may write. A group that is closed for writing stays so.
        """
        started, pause_s = self._around.clock.monotonic(), _FIRST_ROUTE_POLL_S
        while expected and self._around.clock.monotonic() - started < _ROUTE_WAIT_S:
            try:
                route = await self._around.routing.route(topic, fresh=True)
            except DittoError:
                route = None
            known = {group.broker: group for group in route.queues} if route is not None else {}
            if all(broker in known and _shows(known[broker], row) for broker, row in expected.items()):
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_ROUTE_POLL_S)


def _shows(queues: QueueRange, row: TopicConfig) -> bool:
    permission = row.permission & ~PERMISSION_WRITE if queues.writes_off else row.permission
    return (queues.read_queues, queues.write_queues, queues.permission) == (row.read_queues, row.write_queues, permission)


async def _next(stream: Any, who: str) -> Any:
    """The next answer of a watch, or EOF."""
    try:
        with breaking(who):
            async with asyncio.timeout(_SILENCE_S):
                return await stream.read()
    except TimeoutError as silence:
        raise Unavailable(who, f"silent for {_SILENCE_S:g} s") from silence


async def _results(groups: dict[str, list[Node]], ask: Callable[[Node], Awaitable[T]]) -> list[GroupResult[T]]:
    """Of all groups at once: none waits for another one's silent nodes."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_result(name, nodes, ask)) for name, nodes in groups.items()]
    return [task.result() for task in asked]


async def _result(broker: str, nodes: list[Node], ask: Callable[[Node], Awaitable[T]]) -> GroupResult[T]:
    """The first node's answer; the next one is asked only when a node does not answer, or is not ready to, and then says why."""
    problem: DittoError = Unavailable(f"the master of {broker}", "no nameserver knows one now")
    for node in nodes:
        try:
            return GroupResult(broker, await ask(node), None)
        except (Unavailable, NotReady) as silent:
            problem = problem if isinstance(problem, NotReady) else silent
        except DittoError as refused:
            return GroupResult(broker, None, refused)
    return GroupResult(broker, None, problem)
