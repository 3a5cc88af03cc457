"""Which nodes are alive and what they hold. Pure: the driver brings the time, the session names and the requests.

Broker id, node name and replica uuid are each held by one node at most. Who registers under one that another session holds

    with a higher epoch                          takes it at once
    as the same replica at the same address      takes it at once: it restarted, or its role changed
    as the same replica at another address       takes it when the holder has missed a heartbeat; before, one of the two is a copied disk
    as another replica                           takes it when the holder has expired
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from dittomq.errors import (
    DuplicateBrokerId,
    InvalidField,
    LimitReached,
    NotReady,
    SessionExpired,
    TopicNotFound,
    VersionConflict,
    WrongCluster,
)
from dittomq.metadata.topics import nearest_name
from dittomq.naming.validation import check_beat, check_registration
from dittomq.routes import (
    DEFAULT_NETWORK,
    MASTER_ID,
    ORDER_TOPIC_CONFIG,
    PERMISSION_READ,
    PERMISSION_WRITE,
    BrokerState,
    ChangedTopics,
    DataVersion,
    GroupMaster,
    HeartbeatRequest,
    HeartbeatResult,
    Node,
    NodePage,
    QueueRange,
    Registration,
    RegistrationResult,
    Route,
    TopicQueues,
)
from dittomq.wire.naming import MAX_TOPICS
from services.nameserver.seen import LastSeen, Now

MAX_NODES = 10_000
DEFAULT_PAGE = 100
MAX_PAGE = 1_000
PERIODS_IN_EXPIRY = 3  # a broker whose registration period does not fit so often refuses to start
LATE_MS = 3_000  # a heartbeat that comes no later than that was not missed: a broker gives a call so much time
WRITES_OFF = "WRITES_OFF"
"""Namespace of the nameserver's values whose keys are the broker groups that no route names for writing."""
_NO_VALUES: Mapping[str, str] = {}
_NAMES_LOOKED_AT = 100_000  # for one like an unknown one

_PAGE_TOKEN = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")

NodeKey = tuple[str, int]  # broker, broker id


@dataclass(slots=True, eq=False)
class _RegisteredNode:
    """A living node. Its `registration` is without the topics."""

    registration: Registration
    session_id: str
    seen: LastSeen
    topics: dict[str, TopicQueues]
    order_topics: Mapping[str, str]  # what it was told

    @property
    def key(self) -> NodeKey:
        return self.registration.broker, self.registration.broker_id

    @property
    def address(self) -> str:
        return self.registration.addresses[DEFAULT_NETWORK]


def _no_values(_: str) -> Mapping[str, str]:
    return _NO_VALUES


class Registry:
    """Registrations of one cluster. `version` numbers the list of nodes, so that a page token outlives no change of it.

    `values` gives a namespace of the values that the nameserver keeps, the same object until one of them is changed.
    """

    def __init__(self, cluster: str, broker_expiry_ms: int, started: Now, values: Callable[[str], Mapping[str, str]] = _no_values) -> None:
        self._values = values
        self._cluster = cluster
        self._expiry_ms = broker_expiry_ms
        self._started_ms = started.monotonic_ms
        self._listens_since_ms = started.monotonic_ms  # the end of the last suspension, or the start
        self._version = started.wall_ms
        self.changes = 0
        """Of anything that routes are made of, but for the values that the nameserver keeps, and the time."""
        self._members: dict[NodeKey, _RegisteredNode] = {}
        self._groups: dict[str, dict[int, _RegisteredNode]] = {}  # the same members, by broker and id
        self._of_session: dict[str, _RegisteredNode] = {}  # the same
        self._of_replica: dict[str, _RegisteredNode] = {}  # the same, by replica uuid
        self._holders: dict[str, dict[str, None]] = {}  # topic → groups that hold it
        self._settings: dict[str, TopicQueues] = {}  # of these topics, as some node has registered them; most others have the same object

    def register(self, registration: Registration, session_id: str, now: Now) -> RegistrationResult:
        """Enter the node under a new session, or raise what forbids it."""
        unknown = tuple([each for each in registration.topics if self._settings.get(each.topic) != each])
        check_registration(replace(registration, topics=unknown))  # what others have registered alike was looked at then
        if registration.cluster != self._cluster:
            raise WrongCluster("cluster", registration.cluster, self._cluster)
        self.expire(now)
        key = (registration.broker, registration.broker_id)
        if key not in self._members and len(self._members) >= MAX_NODES:
            raise LimitReached("the table of nodes", MAX_NODES)
        holders = self._holders_of(registration)
        for holder in holders:
            self._check_replaceable(holder, registration, now)
        for holder in holders:
            if holder.key != key:
                self._remove(holder)
        order_topics = self._values(ORDER_TOPIC_CONFIG)
        topics = {each.topic: each for each in map(self._shared, registration.topics)}
        self._enter(_RegisteredNode(replace(registration, topics=()), session_id, LastSeen(now), topics, order_topics))
        return RegistrationResult(session_id, self._master(registration.broker), self._expiry_ms, order_topics)

    def heartbeat(self, beat: HeartbeatRequest, now: Now) -> HeartbeatResult:
        """Keep a session alive; raises SessionExpired, InvalidField."""
        check_beat(beat)
        member = self._of_session.get(beat.session_id)
        if member is None:
            raise SessionExpired("this session")
        member.seen = LastSeen(now)
        known = member.registration
        if (beat.epoch, beat.state) != (known.epoch, known.state):
            member.registration = replace(known, epoch=beat.epoch, state=beat.state)
            self.changes += 1
        is_taken = beat.changes is None or self._take_changes(member, beat.changes, beat.data_version)
        is_current = is_taken and beat.data_version == member.registration.data_version
        must_reregister = not is_current or member.order_topics is not self._values(ORDER_TOPIC_CONFIG)
        return HeartbeatResult(must_reregister, self._master(known.broker))

    def unregister(self, session_id: str) -> str | None:
        """Remove the session's node at once, return its name. None when the session is not the node's newest: no node is removed."""
        member = self._of_session.get(session_id)
        if member is None:
            return None
        self._remove(member)
        return member.registration.node

    def expire(self, now: Now) -> list[str]:
        """Forget nodes that were silent for the expiry; returns their names."""
        gone = [member for member in self._members.values() if member.seen.counted_ms(now) >= self._expiry_ms]
        for member in gone:
            self._remove(member)
        return [member.registration.node for member in gone]

    def add_suspension(self, ms: int, now: Now) -> None:
        """The nameserver was suspended for so long until now: that is no silence of a node, and all must have time to say what they did."""
        for member in self._members.values():
            member.seen.add_suspension(ms, now)
        self._listens_since_ms = now.monotonic_ms

    def route(self, topic: str, network: str, now: Now) -> Route:
        """The topic's queues and the nodes of their groups that `network` reaches; raises TopicNotFound, NotReady, InvalidField."""
        queues = tuple(sorted(self._queue_ranges(topic), key=lambda each: each.broker))
        if not queues:
            self._check_may_deny(topic, now)
            similar = nearest_name(topic, islice(self._holders, _NAMES_LOOKED_AT))
            raise TopicNotFound(topic, f"cluster {self._cluster}", similar)
        members = [member for each in queues for member in self._group(each.broker)]
        nodes = tuple(node for node in (self._node(member, network) for member in members) if node.address)
        if not nodes:
            raise InvalidField("network", f'no node of topic "{topic}" advertises an address on "{network}"')
        order_config = self._values(ORDER_TOPIC_CONFIG).get(topic, "")
        return Route(topic, self._cluster, queues, nodes, not self.is_settled(now), order_config)

    def page(self, size: int, token: str, network: str) -> NodePage:
        """Nodes in the order of broker name and id; raises VersionConflict when they changed since the token."""
        if not 0 <= size <= MAX_PAGE:
            raise InvalidField("page_size", f"{size} is outside [0, {MAX_PAGE:,}]")
        start = self._page_start(token)
        end = start + (size or DEFAULT_PAGE)
        keys = sorted(self._members)
        nodes = tuple(self._node(self._members[key], network) for key in keys[start:end])
        return NodePage(nodes, f"{self._version}:{end}" if end < len(keys) else "")

    def topics_of(self, broker: str) -> int | None:
        """How many topics the group holds, as its nodes together say; None while none of them is registered."""
        members = self._groups.get(broker)
        return None if members is None else len(set().union(*(member.topics for member in members.values())))

    @property
    def nodes(self) -> int:
        """How many nodes are registered."""
        return len(self._members)

    def is_settled(self, now: Now) -> bool:
        """Whether it has listened for its expiry: every living node has registered since."""
        return now.monotonic_ms - self._listens_since_ms >= self._expiry_ms

    def _check_may_deny(self, topic: str, now: Now) -> None:
        """Raise NotReady where a group that holds the topic may still have to register: after a start, and while no broker has."""
        up_ms, period_ms = now.monotonic_ms - self._started_ms, self._expiry_ms // PERIODS_IN_EXPIRY
        if up_ms < period_ms:
            why = f'it was started {up_ms // 1_000} s ago, and no broker has registered topic "{topic}" since'
            raise NotReady("the nameserver", f"{why}; brokers register within {period_ms / 1_000:g} s, ask again then")
        if not self._members:
            why = f'no broker is registered with it, so it cannot know whether topic "{topic}" exists'
            raise NotReady("the nameserver", f"{why}; start one, or look whether those that run reach this nameserver")

    def _holders_of(self, registration: Registration) -> list[_RegisteredNode]:
        """Who holds what this one claims: its broker id, its name, its replica uuid."""
        group = self._groups.get(registration.broker, {})
        holders = [each for each in group.values() if each.registration.broker_id == registration.broker_id]
        holders += [each for each in group.values() if each.registration.node == registration.node and each not in holders]
        same_replica = self._of_replica.get(registration.replica_uuid)
        if same_replica is not None and same_replica not in holders:
            holders.append(same_replica)
        return holders

    def _check_replaceable(self, holder: _RegisteredNode, registration: Registration, now: Now) -> None:
        """Raise DuplicateBrokerId unless the holder gives way."""
        held = holder.registration
        if registration.epoch > held.epoch:
            return
        if held.replica_uuid != registration.replica_uuid:
            raise DuplicateBrokerId(registration.node, holder.address, holder.seen.silent_ms(now), held.node)
        heartbeat_ms = min(held.registration_period_ms, self._expiry_ms // PERIODS_IN_EXPIRY) + LATE_MS
        if holder.address != registration.addresses[DEFAULT_NETWORK] and holder.seen.counted_ms(now) <= heartbeat_ms:
            raise DuplicateBrokerId(registration.node, holder.address, holder.seen.silent_ms(now), held.node, held.replica_uuid)

    def _enter(self, member: _RegisteredNode) -> None:
        registration = member.registration
        broker, broker_id = member.key
        old = self._members.get(member.key)
        if old is not None:
            del self._of_session[old.session_id]
            del self._of_replica[old.registration.replica_uuid]
        self._members[member.key] = self._groups.setdefault(broker, {})[broker_id] = member
        self._of_session[member.session_id] = self._of_replica[registration.replica_uuid] = member
        self._index_topics(broker, old.topics if old else {}, member.topics)
        if old is None or _visible(old.registration) != _visible(registration):
            self._version += 1

    def _remove(self, member: _RegisteredNode) -> None:
        broker, broker_id = member.key
        del self._members[member.key]
        del self._groups[broker][broker_id]
        if not self._groups[broker]:
            del self._groups[broker]
        del self._of_session[member.session_id]
        del self._of_replica[member.registration.replica_uuid]
        self._index_topics(broker, member.topics, {})
        self._version += 1

    def _take_changes(self, member: _RegisteredNode, changes: ChangedTopics, version: DataVersion) -> bool:
        """Bring the node's topics to that version; whether they were those that the changes are changes of."""
        if changes.since != member.registration.data_version or len(member.topics) + len(changes.changed) > MAX_TOPICS:
            return False
        changed = {each.topic: each for each in map(self._shared, changes.changed)}
        removed = {topic: member.topics.pop(topic) for topic in changes.removed if topic in member.topics}
        member.topics.update(changed)
        self._index_topics(member.registration.broker, removed, changed)
        member.registration = replace(member.registration, data_version=version)
        return True

    def _shared(self, queues: TopicQueues) -> TopicQueues:
        """The same object as other nodes have: of 1,000 groups with 10,000 topics each there would be millions of equal ones."""
        known = self._settings.get(queues.topic)
        if known == queues:
            return known
        self._settings[queues.topic] = queues
        return queues

    def _index_topics(self, broker: str, before: Mapping[str, TopicQueues], after: Mapping[str, TopicQueues]) -> None:
        self.changes += 1
        for topic in after:
            holders = self._holders.get(topic)
            if holders is None:
                holders = self._holders[topic] = {}
            holders[broker] = None
        held = [member.topics for member in self._group(broker)]
        for topic in before:
            if topic in after or any(topic in topics for topics in held):
                continue
            self._holders[topic].pop(broker, None)
            if not self._holders[topic]:
                del self._holders[topic]
                del self._settings[topic]

    def _group(self, broker: str) -> list[_RegisteredNode]:
        """Members of a group in the order of broker ids."""
        return [member for _, member in sorted(self._groups.get(broker, {}).items())]

    def _master(self, broker: str) -> GroupMaster | None:
        member = self._members.get((broker, MASTER_ID))
        if member is None or not member.registration.leads:
            return None
        known = member.registration
        return GroupMaster(member.address, known.replication_addresses[DEFAULT_NETWORK], known.epoch)

    def _queue_ranges(self, topic: str) -> Iterator[QueueRange]:
        writes_off = self._values(WRITES_OFF)
        for broker in self._holders.get(topic, ()):
            member = next(each for each in self._group(broker) if topic in each.topics)  # the master, if it is alive and has the topic
            queues, node = member.topics[topic], member.registration
            permission = queues.permission & node.permission & (PERMISSION_READ | PERMISSION_WRITE)
            is_closed = broker in writes_off or (node.leads and not node.permission & PERMISSION_WRITE)
            if is_closed or not node.leads or node.state is not BrokerState.SERVING:
                permission &= ~PERMISSION_WRITE
            yield QueueRange(broker, queues.read_queues, queues.write_queues, permission, is_closed)

    @staticmethod
    def _node(member: _RegisteredNode, network: str) -> Node:
        known = member.registration
        return Node(
            cluster=known.cluster,
            broker=known.broker,
            broker_id=known.broker_id,
            role=known.role,
            state=known.state,
            epoch=known.epoch,
            address=known.addresses.get(network, ""),
            replication_address=known.replication_addresses.get(network, ""),
            seen_ms=member.seen.at.wall_ms,
            data_version=known.data_version,
            replica_uuid=known.replica_uuid,
            addresses=known.addresses,
            configured_id=known.configured_id,
        )

    def _page_start(self, token: str) -> int:
        if not token:
            return 0
        parts = _PAGE_TOKEN.fullmatch(token)
        if parts is None:
            raise InvalidField("page_token", "is not one that this server gave; start with an empty one")
        version, start = map(int, parts.groups())
        if version != self._version:
            raise VersionConflict("the list of nodes")
        return start


def _visible(registration: Registration) -> tuple[object, ...]:
    """What a list of nodes shows of a node besides its heartbeats."""
    return registration.replica_uuid, registration.role, dict(registration.addresses), dict(registration.replication_addresses)
