"""Who is alive and what they hold. Pure: the driver brings the time, the session names and the requests.

Who may take a node id, when another session holds it:

    same replica uuid            at once: it restarted, or moved to another address
    same uuid, back and forth    refused at both addresses: one store was copied
    another uuid, higher epoch   at once, the master's id or that of the same configured node; the old one's next heartbeat is told that
                                 it was superseded
    another uuid                 refused while the holder lives
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from dittomq.errors import InvalidField, NodeIdTaken, NotReady, QueueFull, SessionEnded, TopicNotFound, VersionChanged, WrongCluster
from dittomq.metadata.topics import nearest_name
from dittomq.naming.limits import check_beat, check_registration
from dittomq.offsets import Epoch
from dittomq.routes import (
    DEFAULT_NETWORK,
    PERMISSION_READ,
    PERMISSION_WRITE,
    Beat,
    BeatAnswer,
    Claim,
    Membership,
    Node,
    NodePage,
    NodeState,
    Opening,
    QueueRange,
    Registration,
    Route,
    SilentGroup,
    TopicQueues,
)
from services.nameserver.openings import MAX_GROUPS, Openings, named
from services.nameserver.whereabouts import Heard, Now, Whereabouts, forget_oldest

MAX_NODES = MAX_GROUPS  # and no more: of one group more, one has no members
MAX_SUPERSEDED = 10_000
DEFAULT_PAGE = 100
MAX_PAGE = 1_000
PERIODS_IN_EXPIRY = 3  # a broker whose registration period does not fit so often refuses to start
_ANY_GROUP = "any broker group"
MAX_SILENT = 100  # groups in a route that may hold the topic too
_NAMES_LOOKED_AT = 100_000  # for one like an unknown one

_PAGE_TOKEN = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")

NodeKey = tuple[str, int]  # broker, broker id


@dataclass(slots=True)
class _Member:
    """A living node."""

    registration: Registration
    session_id: str
    seen: Heard
    told_epoch: Epoch  # the group's epoch that its last registration was answered with
    topics: Mapping[str, TopicQueues]
    rival: Claim | None = None  # why one leads that was refused its id since the last heartbeat


class Registry:
    """Registrations of one cluster. `version` numbers the list of nodes, so that a page token outlives no change of it."""

    def __init__(self, cluster: str, broker_expiry_ms: int, started: Now, openings: Openings) -> None:
        self._cluster = cluster
        self._expiry_ms = broker_expiry_ms
        self._started = started
        self._version = started.wall_ms
        self._members: dict[NodeKey, _Member] = {}
        self._groups: dict[str, dict[int, _Member]] = {}  # the same members, by broker and id
        self._key_of_session: dict[str, NodeKey] = {}
        self._whereabouts = Whereabouts()
        self._superseded: dict[str, str] = {}  # session → node, oldest first
        self._openings = openings
        self._born_ms = started.monotonic_ms
        self._unheard = dict.fromkeys(openings.groups or [_ANY_GROUP])  # since this start; what they hold is not known yet
        self._holders: dict[str, dict[str, None]] = {}  # topic → groups that hold it

    def register(self, registration: Registration, session_id: str, now: Now) -> Membership:
        """Enter the node under a new session, or raise what forbids it."""
        check_registration(registration)
        if registration.cluster != self._cluster:
            raise WrongCluster("cluster", registration.cluster, self._cluster)
        self.expire(now)
        key = (registration.broker, registration.broker_id)
        self._check_room(key)
        self._check_id(key, registration, now)
        self._check_address(registration, now)
        self._leave_other_ids(key, registration.replica_uuid)
        self._enter(key, registration, session_id, now)
        for heard in (registration.broker, _ANY_GROUP):
            self._unheard.pop(heard, None)
        newest = self._openings.learn(registration.broker, registration.opening, self._groups)
        self._members[key].told_epoch = newest.epoch
        uptime_ms = now.monotonic_ms - self._started.monotonic_ms
        return Membership(session_id, *self._master(registration.broker), self._expiry_ms, newest, uptime_ms)

    def heartbeat(self, beat: Beat, now: Now) -> BeatAnswer:
        """Keep a session alive; raises SessionEnded, InvalidField."""
        check_beat(beat)
        key = self._key_of_session.get(beat.session_id)
        if key is None:
            raise self._ended(beat.session_id)
        member = self._members[key]
        member.seen = Heard(now)
        broker, _ = key
        known = member.registration
        self._whereabouts.heard_at(known.replica_uuid, known.addresses[DEFAULT_NETWORK], now)
        if (beat.epoch, beat.state) != (known.epoch, known.state):
            member.registration = replace(known, epoch=beat.epoch, opener_id=beat.opener_id, state=beat.state)
        newest = self._openings.learn(broker, Opening(beat.epoch, beat.opener_id), self._groups)
        stale = beat.data_version != known.data_version or newest.epoch > member.told_epoch
        rival, member.rival = member.rival, None
        return BeatAnswer(stale, *self._master(broker), rival)

    def group_of(self, session_id: str) -> str | None:
        """The broker group of a session's node; None when nobody has that session."""
        key = self._key_of_session.get(session_id)
        return None if key is None else key[0]

    def unregister(self, session_id: str) -> str | None:
        """Remove the session's node at once, return its name. None when the session is not the node's newest: nobody is removed."""
        key = self._key_of_session.get(session_id)
        if key is None:
            return None
        registration = self._members[key].registration
        self._whereabouts.forget(registration.replica_uuid)
        self._remove(key)
        return registration.node

    def expire(self, now: Now) -> list[str]:
        """Forget nodes that were silent for the expiry; returns their names."""
        oldest_ms = now.monotonic_ms - self._expiry_ms
        gone = [key for key, member in self._members.items() if member.seen.counted_ms <= oldest_ms]
        names = [self._members[key].registration.node for key in gone]
        for key in gone:
            self._remove(key)
        self._whereabouts.expire(oldest_ms)
        return names

    def stood_still(self, ms: int, now: Now) -> None:
        """Nobody was heard for so long because nobody listened: it counts as no silence, and all must have time to say what they did."""
        for member in self._members.values():
            member.seen.stood_still(ms, now)
        self._whereabouts.stood_still(ms, now)
        self._started = now

    def route(self, topic: str, network: str, now: Now) -> Route:
        """The topic's queues and the nodes of their groups that `network` reaches; raises TopicNotFound, NotReady, InvalidField."""
        queues = tuple(sorted(self._queue_ranges(topic), key=lambda each: each.broker))
        if not queues:
            self._check_all_heard(topic, now)
            similar = nearest_name(topic, islice(self._holders, _NAMES_LOOKED_AT))
            raise TopicNotFound(topic, f"cluster {self._cluster}", similar, named(self._openings.silent(self._groups)))
        keys = [(each.broker, broker_id) for each in queues for broker_id, _ in self._group(each.broker)]
        nodes = tuple(node for node in (self._node(key, network) for key in keys) if node.address)
        if not nodes:
            raise InvalidField("network", f'no node of topic "{topic}" advertises an address on "{network}"')
        return Route(topic, self._cluster, queues, nodes, not self.is_settled(now), self.silent(now, MAX_SILENT))

    def page(self, size: int, token: str, network: str, now: Now) -> NodePage:
        """Nodes in the order of broker name and id, then silent groups; raises VersionChanged when they changed since the token."""
        if not 0 <= size <= MAX_PAGE:
            raise InvalidField("page_size", f"{size} is outside [0, {MAX_PAGE:,}]")
        start = self._page_start(token)
        keys = sorted(self._members)
        end = start + (size or DEFAULT_PAGE)
        nodes = tuple(self._node(key, network) for key in keys[start:end])
        silent = self.silent(now)
        more = f"{self._version + self._openings.forgotten}:{end}" if end < len(keys) + len(silent) else ""
        return NodePage(nodes, more, silent[max(0, start - len(keys)) : max(0, end - len(keys))])

    def silent(self, now: Now, limit: int = MAX_GROUPS) -> tuple[SilentGroup, ...]:
        """Groups that are remembered and of which no node is registered, by name; the first `limit` of them."""
        names, unsettled = self._openings.silent(self._groups)[:limit], () if self.is_settled(now) else self._unheard
        return tuple(SilentGroup(self._cluster, group, self._openings.newest(group), group in unsettled) for group in names)

    @property
    def nodes(self) -> int:
        """How many nodes are registered."""
        return len(self._members)

    def is_settled(self, now: Now) -> bool:
        """Whether it has been up for its expiry: whoever lives has registered since."""
        return now.monotonic_ms - self._started.monotonic_ms >= self._expiry_ms

    def _check_all_heard(self, topic: str, now: Now) -> None:
        """Raise NotReady while groups are still to register since this start, for as long as that may take those that live, or none has."""
        up_ms, period_ms = now.monotonic_ms - self._born_ms, self._expiry_ms // PERIODS_IN_EXPIRY
        if self._unheard and up_ms < period_ms:
            unheard = named(self._unheard)
            why = f'it was started {up_ms // 1_000} s ago and has not heard of topic "{topic}" yet, nor of anything that {unheard} holds'
            raise NotReady("the nameserver", f"{why}; brokers register within {period_ms / 1_000:g} s, ask again then")
        if not self._members:
            silent = named(self._openings.silent(self._groups))
            known = f", though it remembers {silent}" if silent else ""
            why = f'no broker is registered with it, so it cannot know whether topic "{topic}" exists{known}'
            raise NotReady("the nameserver", f"{why}; start one, or look whether those that run reach this nameserver")

    def _check_room(self, key: NodeKey) -> None:
        if key not in self._members and len(self._members) >= MAX_NODES:
            raise QueueFull("the table of nodes", MAX_NODES)

    def _check_id(self, key: NodeKey, registration: Registration, now: Now) -> None:
        holder = self._members.get(key)
        if holder is None or holder.registration.replica_uuid == registration.replica_uuid:
            return
        is_rightful = key[1] == 0 or registration.node == holder.registration.node
        if registration.epoch <= holder.registration.epoch or not is_rightful:
            if registration.state is NodeState.SERVING and registration.opener_id is not None:
                holder.rival = Claim(registration.opening, registration.granted_epoch)
            silent_ms = holder.seen.silent_ms(now)
            newest = self._openings.learn(registration.broker, registration.opening, self._groups)
            held = holder.registration
            if held.epoch == newest.epoch and held.opener_id is not None:  # two opened it: the holder's opening counts
                newest = held.opening
            address, granted = held.addresses[DEFAULT_NETWORK], held.granted_epoch or 0
            raise NodeIdTaken(registration.node, address, silent_ms, newest.epoch, newest.opener_id, granted, held.node)

    def _check_address(self, registration: Registration, now: Now) -> None:
        """Raise when the replica's uuid comes from an address that it had left, or that several claim."""
        try:
            self._whereabouts.settle(registration.replica_uuid, registration.addresses[DEFAULT_NETWORK], now)
        except NodeIdTaken:
            self._leave_other_ids(None, registration.replica_uuid)
            raise

    def _leave_other_ids(self, kept: NodeKey | None, uuid: str) -> None:
        for key in [key for key, member in self._members.items() if key != kept and member.registration.replica_uuid == uuid]:
            self._remove(key)

    def _enter(self, key: NodeKey, registration: Registration, session_id: str, now: Now) -> None:
        old = self._members.get(key)
        if old is not None:
            del self._key_of_session[old.session_id]
            if old.registration.replica_uuid != registration.replica_uuid:
                self._remember_superseded(old)
        topics = {each.topic: each for each in registration.topics}
        member = _Member(registration, session_id, Heard(now), Epoch(0), topics)
        self._members[key] = self._groups.setdefault(key[0], {})[key[1]] = member
        self._key_of_session[session_id] = key
        self._index_topics(registration.broker, old.topics if old else {}, topics)
        if old is None or _visible(old.registration) != _visible(registration):
            self._version += 1

    def _ended(self, session_id: str) -> SessionEnded:
        node = self._superseded.get(session_id)
        if node is None:
            return SessionEnded("this session")
        newest = self._openings.newest(node.rpartition("/")[0])
        return SessionEnded(f"the session of {node}", superseded=True, group_epoch=newest.epoch, opener_id=newest.opener_id)

    def _remember_superseded(self, old: _Member) -> None:
        self._superseded[old.session_id] = old.registration.node
        forget_oldest(self._superseded, MAX_SUPERSEDED)

    def _remove(self, key: NodeKey) -> None:
        member = self._members.pop(key)
        del self._groups[key[0]][key[1]]
        if not self._groups[key[0]]:
            del self._groups[key[0]]
        del self._key_of_session[member.session_id]
        self._index_topics(key[0], member.topics, {})
        self._version += 1

    def _index_topics(self, broker: str, before: Mapping[str, TopicQueues], after: Mapping[str, TopicQueues]) -> None:
        for topic in after:
            self._holders.setdefault(topic, {})[broker] = None
        held = [member.topics for _, member in self._group(broker)]
        for topic in before:
            if topic in after or any(topic in topics for topics in held):
                continue
            self._holders[topic].pop(broker, None)
            if not self._holders[topic]:
                del self._holders[topic]

    def _group(self, broker: str) -> list[tuple[int, _Member]]:
        """Members of a group by broker id."""
        return sorted(self._groups.get(broker, {}).items(), key=lambda each: each[0])

    def _master(self, broker: str) -> tuple[str, str, Epoch]:
        member = self._members.get((broker, 0))
        if member is None:
            return "", "", Epoch(0)
        known = member.registration
        return known.addresses[DEFAULT_NETWORK], known.replication_addresses[DEFAULT_NETWORK], known.epoch

    def _queue_ranges(self, topic: str) -> Iterator[QueueRange]:
        for broker in self._holders.get(topic, ()):
            members = [(broker_id, member) for broker_id, member in self._group(broker) if topic in member.topics]
            broker_id, member = members[0]  # the master where it is alive and knows the topic
            queues, node = member.topics[topic], member.registration
            permission = queues.permission & node.permission
            if broker_id != 0 or node.state is not NodeState.SERVING:
                permission &= ~PERMISSION_WRITE
            yield QueueRange(broker, queues.read_queues, queues.write_queues, permission & (PERMISSION_READ | PERMISSION_WRITE))

    def _node(self, key: NodeKey, network: str) -> Node:
        member = self._members[key]
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
        if version != self._version + self._openings.forgotten:
            raise VersionChanged("the list of nodes")
        return start


def _visible(registration: Registration) -> tuple[object, ...]:
    """What a list of nodes shows of a node besides its heartbeats."""
    return registration.replica_uuid, registration.role, dict(registration.addresses), dict(registration.replication_addresses)
