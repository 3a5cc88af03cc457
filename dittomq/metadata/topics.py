"""Topics: their settings, their limits, and how one is found."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import islice

from dittomq.errors import InvalidField, TopicNotFound
from dittomq.message import MAX_TOPIC_CHARACTERS
from dittomq.metadata.rows import Json
from dittomq.routes import PERMISSION_READ, PERMISSION_WRITE, DataVersion

MAX_QUEUES = 1_024
DEFAULT_QUEUES = 8

# RocketMQ's own topics: its brokers write to them when they open this store.
RESERVED_TOPICS = frozenset(
    {
        "BenchmarkTest",
        "CHECKPOINT_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)
_RESERVED_PREFIXES = ("rmq_sys_", "%SYS%")

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_SHOWN_CHARACTERS = 40
# Of the names that are compared with one that is not known: how much longer or shorter they are, how many they are, how long all together.
_OTHER_LENGTH = 2
_COMPARED_NAMES = 1_000
_COMPARED_CHARACTERS = 16_384
# Of those that are looked at closely, which takes a time that grows with the square of their length: how many at least, how long.
_CLOSELY_LOOKED_AT = 2
_CLOSELY_LOOKED_AT_CHARACTERS = 8_192


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic of one broker group. `other_fields`: what RocketMQ's file holds and we have no field for; kept as it is."""

    name: str
    read_queues: int = DEFAULT_QUEUES
    write_queues: int = DEFAULT_QUEUES
    permission: int = PERMISSION_READ | PERMISSION_WRITE
    sys_flag: int = 0
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    filter_type: str = "SINGLE_TAG"
    other_fields: Mapping[str | int, Json] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Rows are sorted and found by it."""
        return self.name


@dataclass(frozen=True, slots=True)
class TopicUpdate:
    """Settings for the topic of that name: `fields` of `topic`. `known`: the version of the topics that they are for; None: any."""

    topic: TopicConfig
    fields: tuple[str, ...]
    known: DataVersion | None = None


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """What one queue holds on one node: [min_offset, max_offset)."""

    queue: int
    min_offset: int
    max_offset: int


def check_topic_name(name: str, field: str = "topic") -> None:
    """Refuse a name that RocketMQ would not take, or that could leave its folder."""
    if not name:
        raise InvalidField(field, f"is empty; a topic name has 1 to {MAX_TOPIC_CHARACTERS} characters")
    if len(name) > MAX_TOPIC_CHARACTERS:
        raise InvalidField(field, f"{_shown(name)} has {len(name):,} characters; use at most {MAX_TOPIC_CHARACTERS}")
    if not _NAME.fullmatch(name):
        raise InvalidField(field, f"{_shown(name)} holds other characters than a topic name may; use letters, digits and % | _ - only")


def check_new_topic(topic: TopicConfig) -> None:
    """Refuse settings that a new topic may not have; the fields are named as in CreateTopicRequest."""
    check_topic_name(topic.name, "topic.name")
    if is_reserved(topic.name):
        raise InvalidField("topic.name", f"{_shown(topic.name)} is reserved for the system; choose another name")
    for field_name, queues in (("topic.read_queues", topic.read_queues), ("topic.write_queues", topic.write_queues)):
        if not 1 <= queues <= MAX_QUEUES:
            raise InvalidField(field_name, f"{queues:,} is outside 1 to {MAX_QUEUES:,}; ask for a number of queues in between")
    if topic.permission not in (PERMISSION_READ, PERMISSION_WRITE, PERMISSION_READ | PERMISSION_WRITE):
        raise InvalidField("topic.permission", f"{topic.permission} is no permission; use 4 (read), 2 (write) or 6 (both)")


def updated(topic: TopicConfig, update: TopicUpdate) -> TopicConfig:
    """The topic with its new settings, the same object when it has them. Refuses what a new topic may not have.

    A queue that may hold messages stays readable; so the table always names every queue that could once be written.
    """
    after = replace(topic, **{name: getattr(update.topic, name) for name in update.fields})
    check_new_topic(after)
    fewer = after.write_queues < topic.write_queues
    kept = max(topic.read_queues, topic.write_queues) if fewer else topic.read_queues
    if after.read_queues < kept:
        problem = f"{after.read_queues:,} would hide queues that may hold messages; keep {kept:,}, and lower write_queues alone"
        raise InvalidField("topic.read_queues", problem)
    return topic if after == topic else after


def is_reserved(name: str) -> bool:
    """Whether the topic is the system's own; such a one may be in a log without being in a table."""
    return name in RESERVED_TOPICS or name.startswith(_RESERVED_PREFIXES)


def find_topic(topics: Mapping[str, TopicConfig], name: str, where: str) -> TopicConfig:
    """The topic of that name, or TopicNotFound with the nearest known name. `where` names the node or cluster."""
    topic = topics.get(name)
    if topic is None:
        raise TopicNotFound(name, where, nearest_name(name, topics))
    return topic


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name most like `name`, empty for none. Takes some milliseconds at most, whatever it is given: callers wait meanwhile.

    Looks at names of about its length only, at a bounded number of them, and closely at the few that share most characters with it.
    """
    if not 0 < len(name) <= MAX_TOPIC_CHARACTERS:
        return ""
    alike = (other for other in known if abs(len(other) - len(name)) <= _OTHER_LENGTH)
    candidates = list(islice(alike, min(_COMPARED_NAMES, _COMPARED_CHARACTERS // len(name))))
    matcher = difflib.SequenceMatcher(b=name)

    def shared(other: str) -> float:
        matcher.set_seq1(other)
        return matcher.quick_ratio()

    most_shared = nlargest(max(_CLOSELY_LOOKED_AT, _CLOSELY_LOOKED_AT_CHARACTERS // len(name) ** 2), candidates, key=shared)
    return next(iter(difflib.get_close_matches(name, most_shared, n=1, cutoff=0.75)), "")


def topics_of_queues(queues: Iterable[tuple[str, int]]) -> dict[str, TopicConfig]:
    """The topics that a log's queues show, with as many queues as the highest one asks for: what a slave knows before its first pull."""
    counts: dict[str, int] = {}
    for topic, queue in queues:
        counts[topic] = max(counts.get(topic, 0), queue + 1)
    return {topic: TopicConfig(topic, count, count) for topic, count in sorted(counts.items())}


def with_held(topics: Mapping[str, TopicConfig], queues: Iterable[tuple[str, int]]) -> Mapping[str, TopicConfig]:
    """The topics of a table, and what only the log knows yet, which has messages in `queues`: topics, and further queues to read."""
    further = [key for key in queues if (topic := topics.get(key[0])) is None or key[1] >= max(topic.read_queues, topic.write_queues)]
    if not further:
        return topics
    known = dict(topics)
    for name, held in topics_of_queues(further).items():
        known[name] = replace(topics[name], read_queues=held.read_queues) if name in topics else held
    return known


def _shown(name: str) -> str:
    """The name's beginning as printable ASCII: it may hold anything."""
    return ascii(name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "...")
