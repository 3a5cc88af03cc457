"""Single messages of a cluster: by id, by key, and those that wait, which may be cancelled.

Masters are asked first, then slaves: they answer while a master is away, from what they know to be confirmed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, TypeVar

from dittomq._pb.ditto.messaging.v1.messaging_pb2 import FindMessagesResponse, GetMessageRequest, GetMessageResponse
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client.routing import ClientContext
from dittomq.client.validation import encoded, epoch_ms
from dittomq.errors import DittoError, InvalidField, MessageNotFound, NotReady, OutcomeHandle, TopicNotFound, Unavailable, VersionConflict
from dittomq.message import StoredMessage
from dittomq.reads import MAX_FOUND_MESSAGES, MAX_LONG, KeyQuery
from dittomq.routes import Node, Role
from dittomq.rpc.channel import call
from dittomq.tokens import ConsistencyToken, parse_id
from dittomq.wire import lookups as wire
from dittomq.wire.lookups import CancelOrder, CancelOutcome
from dittomq.wire.messaging import KnownOutcome, outcome, outcome_request, stored_message

T = TypeVar("T")

_DEADLINE_S: Final = 10.0
_OUTCOME_S: Final = 3.0
_NEXT: Final = (Unavailable, NotReady, MessageNotFound, TopicNotFound)


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message, and the broker group that holds it."""

    broker: str
    message: StoredMessage


class MessageLookups:
    """Looks messages up in all broker groups."""

    def __init__(self, around: ClientContext) -> None:
        self._around = around

    async def get(self, message_id: str) -> FoundMessage:
        """The message of a receipt's token, or of RocketMQ's message id. Raises MessageNotFound, InvalidField, Unavailable."""
        named, _ = parse_id(message_id)
        broker = named.broker if isinstance(named, ConsistencyToken) else None
        problem: DittoError = MessageNotFound("any broker group", message_id)
        for name, nodes in (await self._groups(broker)).items():
            try:
                answer: GetMessageResponse = await self._first(nodes, "GetMessage", lambda: GetMessageRequest(id=message_id))
            except MessageNotFound:
                continue
            except (Unavailable, NotReady) as silent:
                problem = silent
                continue
            return FoundMessage(name, stored_message(answer.message))
        raise problem

    async def find(
        self, topic: str, key: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = MAX_FOUND_MESSAGES
    ) -> list[FoundMessage]:
        """Messages of the topic with that key, the newest first, at most `limit` of each group. Raises TopicNotFound, Unavailable.

        `since` and `until` are store times: [since, until).
        """
        encoded("key", key)
        to_ms = epoch_ms("until", until) or MAX_LONG
        query = KeyQuery(topic, key, epoch_ms("since", since), to_ms, min(max(limit, 1), MAX_FOUND_MESSAGES))
        found: list[FoundMessage] = []
        missing: DittoError | None = None
        groups = await self._groups(None)
        for broker, nodes in groups.items():
            try:
                found += [FoundMessage(broker, message) for message in await self._find_in(nodes, query, limit)]
            except TopicNotFound as unknown:
                missing = unknown
        if missing is not None and not found and len(groups) == 1:
            raise missing
        return sorted(found, key=attrgetter("message.store_ms"), reverse=True)[:limit]

    async def cancel(self, token: str, *, timeout_s: float | None = None) -> CancelOutcome:
        """Let the delayed message of that receipt's token never be delivered; says whether that is confirmed, or too late, or unknown.

        Raises MessageNotFound, InvalidField, PreconditionFailed for a message that was not delayed, and Unavailable, NotReady, after which
        the same call may be made again.
        """
        named, _ = parse_id(token)
        if not isinstance(named, ConsistencyToken):
            raise InvalidField("token", "is RocketMQ's message id; a message is cancelled by the token of its receipt")
        master = await self._master(named.broker)
        request = wire.cancel_request(CancelOrder(token, timeout_s))
        return wire.cancel_outcome(await self._ask(master, "Cancel", request))

    async def outcome(self, broker: str, producer_id: str, sequence: int) -> KnownOutcome:
        """What the master of that group knows of a producer's message: its receipt, that it is absent, or neither."""
        handle = OutcomeHandle(broker, producer_id, sequence, "", 0)
        return outcome(await self._ask(await self._master(broker), "GetPublishResult", outcome_request(handle, None, _OUTCOME_S)))

    async def _master(self, broker: str) -> Node:
        nodes = (await self._groups(broker))[broker]
        master = next((node for node in nodes if node.role is not Role.SLAVE), None)
        if master is None:
            raise Unavailable(f"the master of {broker}", "no nameserver knows one now")
        return master

    async def _find_in(self, nodes: Sequence[Node], query: KeyQuery, limit: int) -> list[StoredMessage]:
        """All pages of one node, as far as they are wanted; begins again where the log was cut between two pages."""
        problem: DittoError = Unavailable("any node", "none is registered")
        for node in nodes:
            try:
                return await self._pages(node, query, limit)
            except (*_NEXT, VersionConflict) as next_one:
                problem = next_one
        raise problem

    async def _pages(self, node: Node, query: KeyQuery, limit: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        token = ""
        while len(found) < limit:
            request = wire.find_messages_request(KeyQuery(query.topic, query.key, query.from_ms, query.to_ms, query.page_size, token))
            response: FindMessagesResponse = await self._ask(node, "FindMessages", request)
            page = wire.key_page(response)
            found += page.messages
            token = page.next_token
            if not token:
                break
        return found[:limit]

    async def _first(self, nodes: Sequence[Node], method: str, make: Callable[[], object]) -> Any:
        """The answer of the first node that has one."""
        problem: DittoError = Unavailable("any node", "none is registered")
        for node in nodes:
            try:
                return await self._ask(node, method, make())
            except _NEXT as next_one:
                problem = problem if isinstance(problem, MessageNotFound) else next_one
        raise problem

    async def _ask(self, node: Node, method: str, request: object) -> Any:
        address = self._around.routing.address(node)
        stub: Any = self._around.channels.stub(MessagingServiceStub, address)
        patient = self._around.channels.backs_off(address)
        who = f"{node.name} at {address}"
        return await call(getattr(stub, method), request, who=who, deadline_s=_DEADLINE_S, patient=patient, node=node)

    async def _groups(self, broker: str | None) -> dict[str, list[Node]]:
        """Nodes by group, the master first."""
        groups: dict[str, list[Node]] = {}
        for node in sorted(await self._around.routing.brokers(), key=lambda each: each.role is Role.SLAVE):
            if broker is None or node.broker == broker:
                groups.setdefault(node.broker, []).append(node)
        if broker is not None and not groups:
            raise InvalidField("id", f'is of broker group "{broker}", which is not registered with any nameserver')
        if not groups:
            raise Unavailable("any broker", "none is registered with the nameserver")
        return dict(sorted(groups.items()))
