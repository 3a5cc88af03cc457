"""Which role a call needs, and which topics and groups its requests name: read from the .proto files, whatever is nested in them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dittomq._pb.ditto.access.v1 import access_pb2
from dittomq.consumer.retries import DEAD_LETTER_PREFIX, RETRY_PREFIX
from dittomq.security.access import AccessRole

TOPIC_FIELDS: Final = frozenset(
    {
        "ditto.admin.v1.Topic.name",
        "ditto.admin.v1.GetTopicRequest.name",
        "ditto.admin.v1.DeleteTopicRequest.name",
    }
)
"""Fields that hold a topic though their names do not say so."""

GROUP_FIELDS: Final = frozenset(
    {
        "ditto.admin.v1.Group.name",
        "ditto.admin.v1.GetGroupRequest.name",
        "ditto.admin.v1.DeleteGroupRequest.name",
        "ditto.messaging.v1.PublishRequest.transaction_group",
    }
)
"""The same for a group."""

LATER: Final = frozenset(
    {
        "ditto.messaging.v1.MessagingService/GetPublishResult",
        "ditto.messaging.v1.MessagingService/GetMessage",
        "ditto.messaging.v1.MessagingService/Cancel",
        "ditto.messaging.v1.TransactionService/EndTransaction",
    }
)
"""Calls that name a message only: who answers them calls `check_topic` when it knows the message's topic."""

_WORDS: Final = ("broker", "node", "target", "namespace", "key")  # what else tells an admin's call from others
_MOST_SHOWN: Final = 200
_TEXT: Final = FieldDescriptor.TYPE_STRING
_MESSAGE: Final = FieldDescriptor.TYPE_MESSAGE

_Path = tuple[tuple[str, bool], ...]  # names of fields, and whether they are repeated


class Named(NamedTuple):
    """What a request names. A group's own topics, retries and dead letters, are named as the group."""

    topics: frozenset[str]
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Places:
    """What is known of one method: its role, and where its requests hold names."""

    method: str
    role: AccessRole
    topics: tuple[_Path, ...]
    groups: tuple[_Path, ...]
    words: tuple[_Path, ...]

    @property
    def has_names(self) -> bool:
        """Whether requests can name a topic or a group."""
        return bool(self.topics or self.groups)

    def named(self, request: Any) -> Named:
        """What a request names."""
        topics = {name for path in self.topics for name in _values(request, path) if name}
        groups = {name for path in self.groups for name in _values(request, path) if name}
        for topic in [topic for topic in topics if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))]:
            topics.discard(topic)
            groups.add(group_of_topic(topic))
        return Named(frozenset(topics), frozenset(groups))

    def resource(self, request: Any) -> str:
        """What a request is about, for a log."""
        paths = (*self.topics, *self.groups, *self.words)
        found = [f"{_shown(path)}={value}" for path in paths for value in _values(request, path) if value]
        if getattr(request, "validate_only", False):
            found.append("validate_only")
        text = " ".join(found)
        return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def group_of_topic(topic: str) -> str:
    """The consumer group whose retries or dead letters lie in this topic; empty for any other topic."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return ""


def call_fields(method: str) -> Places:
    """Of "package.Service/Method". Raises KeyError for one that is not in our .proto files, ValueError for one without a role."""
    service, _, name = method.partition("/")
    pool: Any = descriptor_pool.Default()  # type: ignore[no-untyped-call]
    described = pool.FindServiceByName(service).methods_by_name[name]
    number = described.GetOptions().Extensions[access_pb2.role]
    role = AccessRole(access_pb2.Role.Name(number).removeprefix("ROLE_").lower())
    fields = list(_fields(described.input_type, ()))
    return Places(
        method,
        role,
        tuple(path for field, path in fields if _is_topic(field)),
        tuple(path for field, path in fields if _is_group(field)),
        tuple(path for field, path in fields if field.name in _WORDS and len(path) <= 2),
    )


def _is_topic(field: FieldDescriptor) -> bool:
    return field.name in {"topic", "topics"} or field.full_name in TOPIC_FIELDS


def _is_group(field: FieldDescriptor) -> bool:
    return field.name in {"group", "groups"} or field.full_name in GROUP_FIELDS


def _fields(message: Descriptor, above: _Path) -> Iterator[tuple[FieldDescriptor, _Path]]:
    """Every field of text below a message, with the way to it. Our messages do not contain themselves."""
    for field in message.fields:
        path = (*above, (field.name, field.label == FieldDescriptor.LABEL_REPEATED))
        if field.type == _TEXT:
            yield field, path
        elif field.type == _MESSAGE and field.message_type.full_name.startswith("ditto.") and not _is_map(field):
            yield from _fields(field.message_type, path)


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type.GetOptions().map_entry)


def _values(request: Any, path: _Path) -> Iterable[str]:
    """The texts at the end of the way. A message that is not set holds empty ones."""
    found: list[Any] = [request]
    for name, is_repeated in path:
        if is_repeated:
            found = [each for message in found for each in getattr(message, name)]
        else:
            found = [getattr(message, name) for message in found]
    return found


def _shown(path: _Path) -> str:
    name, _ = path[-1]
    return name if name != "name" or len(path) == 1 else path[-2][0]
