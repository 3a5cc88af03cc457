"""One nameserver, as a node that registers deals with it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from dittomq.errors import DittoError, Unavailable
from dittomq.metadata.made_of_rows import differing
from dittomq.routes import ChangedTopics, GroupMaster, Registration
from dittomq.wire.naming import MAX_CHANGED_TOPICS

CALL_DEADLINE_S: Final = 3.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NameserverAnswer:
    """What one nameserver answered last. `master` is None while it knows none; `order_topics` is as of the registration."""

    nameserver: str
    master: GroupMaster | None
    broker_expiry_ms: int
    order_topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class NameserverSession:
    """One nameserver, as this node deals with it."""

    nameserver: str
    wake: asyncio.Event
    session: str = ""  # empty: not registered
    registered: Registration | None = None  # in that session; None: what is registered there may have been forgotten
    answer: NameserverAnswer | None = None  # None: the last call failed
    was_registered: bool = False  # at any time since this service began
    was_asked: bool = False  # it has answered, refused or been silent once
    refusal: str = ""
    silent_since_s: float | None = None  # None: it answers, or was never called
    taken_since_s: float | None = None  # since when another replica holds this node's id there; None: none does
    is_foreign: bool = False  # it serves another cluster, and has never served ours
    left: asyncio.Event = field(default_factory=asyncio.Event)  # it hears nothing more of this node but goodbye

    def changes(self, registration: Registration) -> ChangedTopics | None:
        """What has changed of the topics since this session began; None where a heartbeat does not bring all that has changed."""
        before = self.registered
        if not self.session or before is None:
            return None
        others = replace(before, topics=registration.topics, data_version=registration.data_version)
        if replace(others, epoch=registration.epoch, state=registration.state) != registration:
            return None
        where = differing(before.topics, registration.topics)
        old = {queues.topic: queues for queues in before.topics[where.start : where.before_end]}
        new = {queues.topic: queues for queues in registration.topics[where.start : where.now_end]}
        changed = tuple(queues for topic, queues in new.items() if old.get(topic) != queues)
        removed = tuple(topic for topic in old if topic not in new)
        if max(len(changed), len(removed)) > MAX_CHANGED_TOPICS:
            return None
        return ChangedTopics(before.data_version, changed, removed)

    def is_new_problem(self, problem: DittoError | None) -> bool:
        """Record what keeps the node out of its routes, or may. Until that changes, it need not be logged again."""
        before, self.refusal = self.refusal, "" if problem is None else str(problem)
        return self.refusal not in ("", before)

    def record_unreachable(self, node: str, silence: Unavailable | None, now: float) -> None:
        """Log when it no longer answers, and when it does again, if only to refuse; `silence` None: it answered just now."""
        if silence is not None and self.silent_since_s is None:
            self.silent_since_s = now
            log.warning("nameserver_unreachable", node=node, nameserver=self.nameserver, problem=str(silence))
        elif silence is None and self.silent_since_s is not None:
            log.info("nameserver_reachable", node=node, nameserver=self.nameserver, silent_s=round(now - self.silent_since_s, 1))
            self.silent_since_s = None
