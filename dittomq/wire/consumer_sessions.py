"""ditto.messaging.v1 ↔ values: members of groups, order locks, and messages that come again. From the wire: valid or InvalidField."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import consumer_sessions_pb2 as pb
from dittomq.consumer.assignment import Strategy, TopicQueue
from dittomq.consumer.group_session import ConsumeMode, JoinOrder, QueueAssignment
from dittomq.consumer.tag_filter import parse_tags
from dittomq.errors import InvalidField
from dittomq.metadata.topics import check_topic_name

MAX_SUBSCRIPTIONS = 256
MAX_QUEUES_IN_A_CALL = 1_024
_MEMBER = re.compile(r"[!-~]{1,255}")
_PROCESS = re.compile(r"[!-~]{1,64}")
_MODES = {
    pb.CONSUME_MODE_UNSPECIFIED: ConsumeMode.CLUSTERING,
    pb.CONSUME_MODE_CLUSTERING: ConsumeMode.CLUSTERING,
    pb.CONSUME_MODE_BROADCASTING: ConsumeMode.BROADCASTING,
}
_MODE_TO_PB = {mode: number for number, mode in _MODES.items()}
_STRATEGIES = {
    pb.ASSIGNMENT_STRATEGY_UNSPECIFIED: Strategy.AVERAGE,
    pb.ASSIGNMENT_STRATEGY_AVERAGE: Strategy.AVERAGE,
    pb.ASSIGNMENT_STRATEGY_CIRCLE: Strategy.CIRCLE,
    pb.ASSIGNMENT_STRATEGY_CONSISTENT_HASH: Strategy.CONSISTENT_HASH,
    pb.ASSIGNMENT_STRATEGY_STICKY: Strategy.STICKY,
}
_STRATEGY_TO_PB = {strategy: number for number, strategy in _STRATEGIES.items()}


@dataclass(frozen=True, slots=True)
class JoinFrame:
    """What a member tells. `order`: it comes in, or changes what it reads; None: a heartbeat, `generation` is what it has put into effect.

    `leaves`: it reads nothing any more.
    """

    number: int
    group: str = ""
    order: JoinOrder | None = None
    generation: int = 0
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """What the master answers: the newest frame that it has seen, and an assignment if there is another one. Seconds."""

    answered: int
    assignment: QueueAssignment | None
    session_s: float
    heartbeat_s: float


@dataclass(frozen=True, slots=True)
class SendBackOrder:
    """Which message of which group needs another try. `level` None: the delay grows with the tries; 0: at once; negative: no other try."""

    group: str
    source: TopicQueue
    offset: int
    level: int | None = None


@dataclass(frozen=True, slots=True)
class SentBack:
    """Whether the group gave the message up, and how many tries came before its next one."""

    dead_letter: bool
    tries: int


@dataclass(frozen=True, slots=True)
class LockOrder:
    """Queues to lock, or to free, for a member."""

    group: str
    member: str
    queues: frozenset[TopicQueue]


def join_frame(request: pb.JoinRequest) -> JoinFrame:
    """Decode what a member tells."""
    match request.WhichOneof("frame"):
        case "join":
            return JoinFrame(request.number, request.join.group, _join_order(request.join))
        case "heartbeat":
            return JoinFrame(request.number, generation=request.heartbeat.generation)
        case "leave":
            return JoinFrame(request.number, leaves=True)
        case _:
            raise InvalidField("frame", "is missing; send join, then heartbeat")


def join_request(frame: JoinFrame) -> pb.JoinRequest:
    """Encode what a member tells."""
    order = frame.order
    if frame.leaves:
        return pb.JoinRequest(number=frame.number, leave=pb.MemberLeave())
    if order is None:
        return pb.JoinRequest(number=frame.number, heartbeat=pb.MemberHeartbeat(generation=frame.generation))
    join = pb.JoinMember(
        group=frame.group,
        member=order.member,
        process=order.process,
        subscriptions=[pb.TopicSubscription(topic=topic, tag=tag) for topic, tag in order.subscriptions.items()],
        mode=_MODE_TO_PB[order.mode],
        strategy=_STRATEGY_TO_PB[order.strategy],
        held=_queue_sets(order.held),
        generation=order.generation,
    )
    return pb.JoinRequest(number=frame.number, join=join)


def join_response(answer: JoinAnswer) -> pb.JoinResponse:
    """Encode what the master answers."""
    response = pb.JoinResponse(
        answered=answer.answered, session=_duration(answer.session_s), heartbeat_period=_duration(answer.heartbeat_s)
    )
    if answer.assignment is not None:
        response.assignment.generation = answer.assignment.generation
        response.assignment.members.extend(answer.assignment.members)
        response.assignment.queues.extend(_queue_sets(answer.assignment.queues))
    return response


def join_answer(response: pb.JoinResponse) -> JoinAnswer:
    """Decode what the master answers."""
    given = None
    if response.HasField("assignment"):
        queues = frozenset(TopicQueue(each.topic, queue) for each in response.assignment.queues for queue in each.queues)
        given = QueueAssignment(response.assignment.generation, tuple(response.assignment.members), queues)
    return JoinAnswer(response.answered, given, _seconds(response.session), _seconds(response.heartbeat_period))


def lock_order(request: pb.LockQueuesRequest | pb.UnlockQueuesRequest) -> LockOrder:
    """Decode which queues to lock, or to free."""
    queues = queues_from_pb("queues", request.queues)
    if not queues:
        raise InvalidField("queues", "is empty; name 1 to 1,024 queues")
    return LockOrder(request.group, member_name(request.member), queues)


def lock_queues_response(locked: Iterable[TopicQueue], lease_s: float) -> pb.LockQueuesResponse:
    """Encode what is locked, for so long."""
    return pb.LockQueuesResponse(locked=_queue_sets(locked), lease=_duration(lease_s))


def send_back_order(request: pb.SendBackRequest) -> SendBackOrder:
    """Decode which message needs another try."""
    for name in ("queue", "offset"):
        if not request.HasField(name):
            raise InvalidField(name, "is missing; 0 is the first")
    check_topic_name(request.topic, "topic")
    if request.queue < 0 or request.offset < 0:
        raise InvalidField("queue" if request.queue < 0 else "offset", "is negative; 0 is the first")
    level = request.delay_level if request.HasField("delay_level") else None
    return SendBackOrder(request.group, TopicQueue(request.topic, request.queue), request.offset, level)


def send_back_request(order: SendBackOrder) -> pb.SendBackRequest:
    """Encode which message needs another try."""
    return pb.SendBackRequest(
        group=order.group, topic=order.source.topic, queue=order.source.queue, offset=order.offset, delay_level=order.level
    )


def send_back_response(sent: SentBack) -> pb.SendBackResponse:
    """Encode what became of it."""
    return pb.SendBackResponse(dead_letter=sent.dead_letter, tries=sent.tries)


def sent_back(response: pb.SendBackResponse) -> SentBack:
    """Decode what became of it."""
    return SentBack(response.dead_letter, response.tries)


def queues_from_pb(field: str, sets: Iterable[pb.QueueSet]) -> frozenset[TopicQueue]:
    """At most 1,024 queues; InvalidField for more, or for one that is negative."""
    found: set[TopicQueue] = set()
    for each in sets:
        check_topic_name(each.topic, f"{field}.topic")
        for queue in each.queues:
            if queue < 0:
                raise InvalidField(f"{field}.queues", f"{queue} is negative; 0 is the first")
            found.add(TopicQueue(each.topic, queue))
            if len(found) > MAX_QUEUES_IN_A_CALL:
                raise InvalidField(field, f"has more than {MAX_QUEUES_IN_A_CALL:,} queues; call once for some of them")
    return frozenset(found)


def member_name(name: str) -> str:
    """The name; InvalidField for what cannot be one."""
    if not _MEMBER.fullmatch(name):
        raise InvalidField("member", "is not 1 to 255 printable ASCII characters without spaces")
    return name


def _join_order(join: pb.JoinMember) -> JoinOrder:
    if not _PROCESS.fullmatch(join.process):
        raise InvalidField("process", "is not 1 to 64 printable ASCII characters without spaces; take a random one for each process")
    if not 1 <= len(join.subscriptions) <= MAX_SUBSCRIPTIONS:
        raise InvalidField("subscriptions", f"has {len(join.subscriptions):,} topics; name 1 to {MAX_SUBSCRIPTIONS}")
    subscriptions: dict[str, str] = {}
    for each in join.subscriptions:
        check_topic_name(each.topic, "subscriptions.topic")
        if each.topic in subscriptions:
            raise InvalidField("subscriptions", f'names topic "{each.topic}" twice; join its tags with ||')
        subscriptions[each.topic] = parse_tags(each.tag).expression
    if join.generation < 0:
        raise InvalidField("generation", f"{join.generation} is negative; 0 is none")
    for field, number, known in (("mode", join.mode, _MODES), ("strategy", join.strategy, _STRATEGIES)):
        if number not in known:
            raise InvalidField(field, f"{number} is none of this version")
    return JoinOrder(
        member=member_name(join.member),
        process=join.process,
        subscriptions=subscriptions,
        mode=_MODES[join.mode],
        strategy=_STRATEGIES[join.strategy],
        held=_held(join.held),
        generation=join.generation,
    )


def _held(sets: Iterable[pb.QueueSet]) -> frozenset[TopicQueue]:
    """As many as a member can be told."""
    return frozenset(TopicQueue(each.topic, queue) for each in sets for queue in each.queues)


def _queue_sets(queues: Iterable[TopicQueue]) -> list[pb.QueueSet]:
    return [
        pb.QueueSet(topic=topic, queues=[each.queue for each in group]) for topic, group in groupby(sorted(queues), key=attrgetter("topic"))
    ]


def _duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))


def _seconds(duration: Duration) -> float:
    return float(duration.seconds) + float(duration.nanos) / 1e9
