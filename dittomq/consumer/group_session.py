"""Who is a member of a group at one master, and which queues each may read: events and the time in, changed assignments out.

A queue changes hands in two steps, so that two members never read it at once: its holder is told an assignment without it, and lets go
by a heartbeat that names the generation of that assignment; only then the next member is told one with it. A holder that is silent for
the session timeout has lost all; it knows that by itself, earlier, because it counts from when it sent what was answered.

The state is not replicated. After a failover members join again and name what they hold, which they keep; a queue that none names stays
unread for one session timeout, because a member that cannot reach this master may still hold it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dittomq.consumer.assignment import Strategy, TopicQueue, assign
from dittomq.errors import LimitReached, PreconditionFailed, SessionExpired

SESSION_S: Final = 10.0
HEARTBEAT_S: Final = 2.0
MAX_MEMBERS: Final = 1_000
_EPOCH_SHIFT: Final = 32


class ConsumeMode(Enum):
    """Who gets a message."""

    CLUSTERING = "clustering"
    """One member of the group."""
    BROADCASTING = "broadcasting"
    """Each member."""


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """A member and what it wants. `subscriptions`: topic → tag expression. `held`: what it may still read from an earlier session.

    `process` is a random name of the process: the same one may come again, another one with the same `member` is refused.
    """

    member: str
    process: str
    subscriptions: Mapping[str, str]
    mode: ConsumeMode = ConsumeMode.CLUSTERING
    strategy: Strategy = Strategy.AVERAGE
    held: frozenset[TopicQueue] = frozenset()
    generation: int = 0
    """Of the newest assignment that it has put into effect, an earlier master's too; 0: none."""

    @property
    def epoch(self) -> int:
        """Of the master that told it that assignment; 0: none did."""
        return self.generation >> _EPOCH_SHIFT


@dataclass(frozen=True, slots=True)
class QueueAssignment:
    """What a member may read from now on, and who else is there. A later one has a higher generation, also after a failover."""

    generation: int
    members: tuple[str, ...]
    queues: frozenset[TopicQueue]


@dataclass(slots=True)
class _MemberState:
    order: JoinOrder
    last_seen: float
    given: QueueAssignment
    leaves: bool = False
    holds: set[TopicQueue] = field(default_factory=set)


class GroupSession:
    """The members of one group at one master. Times are seconds of its monotonic clock.

    What changes something returns the members whose assignment is another one now; `assignment` tells it.
    """

    def __init__(self, group: str, *, epoch: int, settled_at: float, session_s: float = SESSION_S) -> None:
        """`epoch` is the master's. Before `settled_at` a queue that no member holds is given to none."""
        self._group = group
        self._generation = epoch << _EPOCH_SHIFT
        self._settled_at = settled_at
        self._session_s = session_s
        self._members: dict[str, _MemberState] = {}
        self._queues: frozenset[TopicQueue] = frozenset()
        self._was_settled = False

    @property
    def members(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(sorted(self._members))

    @property
    def holders(self) -> Mapping[TopicQueue, str]:
        """Who may read each queue now; of a broadcasting group nobody is named."""
        return {} if self._is_broadcast else {queue: name for name, member in self._members.items() for queue in member.holds}

    @property
    def topics(self) -> frozenset[str]:
        """What any member has subscribed to."""
        return frozenset(topic for member in self._members.values() for topic in member.order.subscriptions)

    def assignment(self, member: str) -> QueueAssignment:
        """What the member was told last; SessionExpired for none."""
        return self._known(member).given

    def join(self, order: JoinOrder, queues: Iterable[TopicQueue], now: float) -> frozenset[str]:
        """Take a member in, or its other subscription. `queues` are all that the group's topics have here.

        Raises PreconditionFailed where it does not fit the living members, and LimitReached when there are too many.
        """
        self._drop_silent(now)
        self._check(order)
        self._queues = frozenset(queues)
        held_by_others = {queue for name, member in self._members.items() if name != order.member for queue in member.holds}
        before = self._members.get(order.member)
        holds = set(order.held & self._queues if before is None else before.holds)
        if order.mode is ConsumeMode.CLUSTERING:
            holds -= held_by_others
        given = QueueAssignment(0, (), frozenset()) if before is None else before.given
        self._members[order.member] = _MemberState(order, now, given, holds=holds)
        return self._share_out(now) | {order.member}

    def repeats(self, order: JoinOrder) -> bool:
        """Whether the member is here already and asks for what it has."""
        before = self._members.get(order.member)
        return before is not None and _asked(before.order) == _asked(order)

    def heartbeat(self, member: str, process: str, generation: int, now: float) -> frozenset[str]:
        """The member lives and has done what the assignment of this generation says: what is not in it is free.

        An older generation frees nothing. Raises SessionExpired when it is no member, or names a generation that nobody gave it.
        """
        has_dropped = self._drop_silent(now)
        known = self._known(member)
        if known.order.process != process or generation > known.given.generation:
            raise SessionExpired(self._session_of(member))
        known.last_seen = now
        frees = generation == known.given.generation and bool(known.holds - known.given.queues)
        if frees:
            known.holds &= known.given.queues
        return self._share_out(now) if frees or has_dropped else frozenset()

    def leave(self, member: str, process: str, now: float) -> frozenset[str]:
        """The member reads nothing any more."""
        known = self._members.get(member)
        if known is None or known.order.process != process:
            return frozenset()
        del self._members[member]
        return self._share_out(now)

    def look(self, queues: Iterable[TopicQueue], now: float) -> frozenset[str]:
        """Time has passed, and the group's topics have these queues now."""
        has_dropped, found = self._drop_silent(now), frozenset(queues)
        if not has_dropped and found == self._queues and self._was_settled == (now >= self._settled_at):
            return frozenset()
        self._queues = found
        return self._share_out(now)

    @property
    def _is_broadcast(self) -> bool:
        return any(member.order.mode is ConsumeMode.BROADCASTING for member in self._members.values())

    def _known(self, member: str) -> _MemberState:
        known = self._members.get(member)
        if known is None:
            raise SessionExpired(self._session_of(member))
        return known

    def _session_of(self, member: str) -> str:
        return f"the session of {member} in group {self._group}"

    def _drop_silent(self, now: float) -> bool:
        silent = [name for name, member in self._members.items() if now - member.last_seen >= self._session_s]
        for name in silent:
            del self._members[name]
        return bool(silent)

    def _check(self, order: JoinOrder) -> None:
        before = self._members.get(order.member)
        if before is not None and before.order.process != order.process:
            raise PreconditionFailed(f"member {order.member} of group {self._group} is alive; give each process a name of its own")
        if before is None and len(self._members) >= MAX_MEMBERS:
            raise LimitReached(f"group {self._group}", MAX_MEMBERS)
        for name, member in self._members.items():
            if name != order.member:
                self._check_beside(order, name, member.order)

    def _check_beside(self, order: JoinOrder, name: str, other: JoinOrder) -> None:
        """What one member passes over is committed for all: members must want the same of a topic."""
        for what, mine, theirs in (("mode", order.mode, other.mode), ("strategy", order.strategy, other.strategy)):
            if mine is not theirs:
                raise PreconditionFailed(
                    f"group {self._group} has the {what} {theirs.value}, by {name}; {order.member} asks for {mine.value}"
                )
        for topic, tags in order.subscriptions.items():
            if other.subscriptions.get(topic, tags) != tags:
                theirs_tags = other.subscriptions[topic]
                raise PreconditionFailed(
                    f"group {self._group} reads topic {topic} with tag {theirs_tags}, by {name}; {order.member} asks for {tags}"
                )

    def _share_out(self, now: float) -> frozenset[str]:
        """Give each member what it shall have and nobody else holds; who is told something new."""
        members, holders = self._members, self.holders
        subscribed = {name: frozenset(member.order.subscriptions) for name, member in members.items()}
        targets: Mapping[str, frozenset[TopicQueue]]
        if self._is_broadcast:
            targets = {name: frozenset(q for q in self._queues if q.topic in topics) for name, topics in subscribed.items()}
        else:
            strategy = next((member.order.strategy for member in members.values()), Strategy.AVERAGE)
            targets = assign(strategy, subscribed, self._queues, before=holders)
        self._was_settled = now >= self._settled_at
        is_settled, names = self._was_settled or self._is_broadcast, self.members
        changed = set[str]()
        for name, member in members.items():
            free = {queue for queue in targets[name] if queue in member.holds or (is_settled and queue not in holders)}
            if free != member.given.queues or names != member.given.members:
                changed.add(name)
            member.holds |= free
            member.given = QueueAssignment(member.given.generation, names, frozenset(free))
        if changed:
            self._generation += 1
        for name in changed:
            member = members[name]
            member.given = QueueAssignment(self._generation, names, member.given.queues)
        return frozenset(changed)


def _asked(order: JoinOrder) -> tuple[object, ...]:
    return order.process, dict(order.subscriptions), order.mode, order.strategy
