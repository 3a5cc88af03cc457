"""The four tables as RocketMQ's files in `config/`: what is decoded and encoded again is equal, fields we do not know included."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Generic, TypeVar

from dittomq.metadata import fastjson
from dittomq.metadata.rows import ConsumerOffset, DelayOffset, GroupConfig, Json
from dittomq.metadata.tables import QueueMinimums, R, Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion

# Our own field of topics.json. RocketMQ reads past it and does not write it again; each node's store has its minimums too.
_MINIMUMS_FIELD = "dittomqQueueMinimums"

# Our own field of a group in subscriptionGroup.json, where it is not 0.
_INCARNATION_FIELD = "dittomqIncarnation"

OFFSET_INCARNATIONS_FIELD = "dittomqIncarnations"
"""Our own field of consumerOffset.json: topic@group → the incarnation of the group that committed it, where it is not 0."""
OFFSET_RESETS_FIELD = "dittomqResets"
"""The same: topic@group → queue → how often its offset was reset, where it was."""

# No longer than Java's long; more leading zeros than fit are no number.
_INTEGER = re.compile(r"-?[0-9]{1,20}")

Fields = dict[str | int, Json]
V = TypeVar("V")

Columns = tuple[tuple[str, str, Any, int], ...]
"""RocketMQ's name of a field, ours, what it is where it is absent, and how many bits a number has: 0 for what is none."""
_TOPIC_COLUMNS: Columns = (
    ("readQueueNums", "read_queues", 16, 32),
    ("writeQueueNums", "write_queues", 16, 32),
    ("perm", "permission", 6, 32),
    ("topicSysFlag", "sys_flag", 0, 32),
    ("order", "order", False, 0),
    ("topicFilterType", "filter_type", "SINGLE_TAG", 0),
)
_GROUP_COLUMNS: Columns = (
    ("consumeEnable", "consume_enable", True, 0),
    ("consumeFromMinEnable", "consume_from_min_enable", True, 0),
    ("consumeBroadcastEnable", "consume_broadcast_enable", True, 0),
    ("consumeMessageOrderly", "consume_message_orderly", False, 0),
    ("retryQueueNums", "retry_queues", 1, 32),
    ("retryMaxTimes", "retry_max_times", 16, 32),
    ("brokerId", "broker_id", 0, 64),
    ("whichBrokerWhenConsumeSlowly", "which_broker_when_consume_slowly", 1, 64),
    (_INCARNATION_FIELD, "incarnation", 0, 64),
)


class DamagedFile(ValueError):
    """The bytes are not what a file of that table holds; says where."""


@dataclass(frozen=True, slots=True)
class TableKind(Generic[R]):
    """One of the four tables. `name` is what people read, `path` its file, `field` where the file holds the rows.

    `take_own` completes rows with what fields of ours hold of them, which it takes from the file's; `own_fields` makes those fields.
    """

    name: str
    path: str
    field: str
    decode_rows: Callable[[Fields], Iterable[R]]
    encode_rows: Callable[[Iterable[R]], Fields]
    take_own: Callable[[Iterable[R], Fields], Iterable[R]] = lambda rows, _: rows
    own_fields: Callable[[Iterable[R]], Fields] = lambda _: {}


def decode(kind: TableKind[R], data: bytes) -> Table[R]:
    """The table that the file's bytes hold; raises DamagedFile."""
    try:
        fields = fastjson.loads(data.decode("utf-8"))
    except ValueError as error:
        raise DamagedFile(f"is not JSON as RocketMQ writes it ({error})") from error
    if not isinstance(fields, dict):
        raise DamagedFile("holds no object")
    version = _decode_version(_take(fields, "dataVersion", dict, {}))
    rows = kind.take_own(kind.decode_rows(_take(fields, kind.field, dict, {})), fields)
    minimums = _decode_minimums(_take(fields, _MINIMUMS_FIELD, dict, {}))
    return Table(version, sorted_rows(rows), fields, minimums)


def encode(kind: TableKind[R], table: Table[R]) -> bytes:
    """The file's bytes, a row a line."""
    version: Fields = {
        "counter": table.version.counter,
        "stateVersion": table.version.state_version,
        "timestamp": table.version.timestamp_ms,
    }
    fields: Fields = {**table.other_fields, "dataVersion": version, kind.field: kind.encode_rows(table.rows.values())}
    fields |= kind.own_fields(table.rows.values())
    if table.minimums:
        fields[_MINIMUMS_FIELD] = _encode_minimums(table.minimums)
    return fastjson.dumps(fields, pretty_levels=2).encode("ascii")


def _decode_version(fields: Fields) -> DataVersion:
    return DataVersion(
        state_version=_take_integer(fields, "stateVersion", 0, 64),
        timestamp_ms=_take_integer(fields, "timestamp", 0, 64),
        counter=_take_integer(fields, "counter", 0, 64),
    )


def _decode_minimums(topics: Fields) -> QueueMinimums:
    queues = ((str(topic), queue, low) for topic, lows in topics.items() for queue, low in _object(topic, lows).items())
    return dict(sorted(((topic, _number(topic, queue, 32)), _number(topic, low, 64)) for topic, queue, low in queues))


def _encode_minimums(minimums: QueueMinimums) -> Fields:
    return {topic: {queue: low for (_, queue), low in lows} for topic, lows in groupby(minimums.items(), lambda each: each[0][0])}


def _decode_named(make: Callable[..., R], name_field: str, columns: Columns) -> Callable[[Fields], Iterable[R]]:
    """Decodes rows by name, each of which repeats its name in a field."""

    def decode_rows(rows: Fields) -> Iterable[R]:
        for name, fields in rows.items():
            row = _object(name, fields)
            row.pop(name_field, None)
            taken = {
                ours: _take_integer(row, theirs, default, bits) if bits else _take(row, theirs, type(default), default)
                for theirs, ours, default, bits in columns
            }
            yield make(name=str(name), **taken, attributes=_take_attributes(row), other_fields=row)

    return decode_rows


def _encode_named(name_field: str, columns: Columns) -> Callable[[Iterable[TopicConfig | GroupConfig]], Fields]:
    def encode_row(row: TopicConfig | GroupConfig) -> Fields:
        known = {theirs: getattr(row, ours) for theirs, ours, _, _ in columns}
        if not known.get(_INCARNATION_FIELD, 1):
            del known[_INCARNATION_FIELD]
        known |= {"attributes": dict(row.attributes.items()), name_field: row.name}
        return {**row.other_fields, **dict(sorted(known.items()))}

    return lambda rows: {row.name: encode_row(row) for row in rows}


def _decode_offsets(rows: Fields) -> Iterable[ConsumerOffset]:
    for name, fields in rows.items():
        topic, at, group = str(name).partition("@")
        if not at:
            raise DamagedFile(f"key {name!r} is not topic@group")
        for queue, offset in _object(name, fields).items():
            yield ConsumerOffset(topic, group, _number(name, queue, 32), _number(name, offset, 64))


def _encode_offsets(rows: Iterable[ConsumerOffset]) -> Fields:
    queues = ((f"{topic}@{group}", rows_of_one) for (topic, group), rows_of_one in groupby(rows, lambda row: (row.topic, row.group)))
    return {name: {row.queue: row.offset for row in rows_of_one} for name, rows_of_one in queues}


def _take_own_offsets(rows: Iterable[ConsumerOffset], fields: Fields) -> Iterable[ConsumerOffset]:
    incarnations = _take(fields, OFFSET_INCARNATIONS_FIELD, dict, {})
    resets = _take(fields, OFFSET_RESETS_FIELD, dict, {})
    if not incarnations and not resets:
        return rows
    return [_completed(row, incarnations, resets) for row in rows]


def _completed(row: ConsumerOffset, incarnations: Fields, resets: Fields) -> ConsumerOffset:
    name = f"{row.topic}@{row.group}"
    incarnation = _number(name, incarnations.get(name, 0), 64)
    of_queues = _object(name, resets.get(name, {}))
    return replace(row, resets=_number(name, of_queues.get(row.queue, 0), 64), incarnation=incarnation)


def _own_offset_fields(rows: Iterable[ConsumerOffset]) -> Fields:
    incarnations: Fields = {}
    resets: dict[str | int, Fields] = {}
    for row in rows:
        name = f"{row.topic}@{row.group}"
        if row.incarnation:
            incarnations[name] = row.incarnation
        if row.resets:
            resets.setdefault(name, {})[row.queue] = row.resets
    fields: Fields = {OFFSET_INCARNATIONS_FIELD: incarnations, OFFSET_RESETS_FIELD: dict(resets)}
    return {field: value for field, value in fields.items() if value}


def _decode_delays(rows: Fields) -> Iterable[DelayOffset]:
    for level, offset in rows.items():
        yield DelayOffset(_number("level", level, 32), _number(level, offset, 64))


def _encode_delays(rows: Iterable[DelayOffset]) -> Fields:
    return {row.level: row.offset for row in rows}


def _object(name: str | int, value: Json) -> Fields:
    if not isinstance(value, dict):
        raise DamagedFile(f"{name} is no object")
    return value


def _take(fields: Fields, name: str, kind: type[V], default: V) -> V:
    """Remove and return a field; absent and null are the default, as they are for RocketMQ."""
    value = fields.pop(name, None)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise DamagedFile(f"{name} is {value!r}, not a {kind.__name__}")
    return value


def _take_integer(fields: Fields, name: str, default: int, bits: int = 32) -> int:
    value = fields.pop(name, None)
    return default if value is None else _number(name, value, bits)


def _take_attributes(fields: Fields) -> Mapping[str, str]:
    attributes: dict[str, str] = {}
    for name, value in _take(fields, "attributes", dict, {}).items():
        if not isinstance(value, str):
            raise DamagedFile(f"attribute {name} is {value!r}, not a string")
        attributes[str(name)] = value
    return attributes


def _number(name: str | int, value: Json, bits: int) -> int:
    """A whole number that fits Java's int (32 bits) or long (64); integer keys may be quoted."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise DamagedFile(f"{name} is {value!r}, not a whole number of {bits} bits")
    return value


TOPICS: TableKind[TopicConfig] = TableKind(
    "topics",
    "config/topics.json",
    "topicConfigTable",
    _decode_named(TopicConfig, "topicName", _TOPIC_COLUMNS),
    _encode_named("topicName", _TOPIC_COLUMNS),
)
GROUPS: TableKind[GroupConfig] = TableKind(
    "subscription groups",
    "config/subscriptionGroup.json",
    "subscriptionGroupTable",
    _decode_named(GroupConfig, "groupName", _GROUP_COLUMNS),
    _encode_named("groupName", _GROUP_COLUMNS),
)
CONSUMER_OFFSETS: TableKind[ConsumerOffset] = TableKind(
    "consumer offsets",
    "config/consumerOffset.json",
    "offsetTable",
    _decode_offsets,
    _encode_offsets,
    _take_own_offsets,
    _own_offset_fields,
)
DELAY_OFFSETS: TableKind[DelayOffset] = TableKind("delay offsets", "config/delayOffset.json", "offsetTable", _decode_delays, _encode_delays)

KINDS: tuple[TableKind[Any], ...] = (TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS)

WHOLE_KINDS: tuple[TableKind[Any], ...] = (TOPICS, GROUPS, DELAY_OFFSETS)
"""Those that change, and are pulled, as a whole; consumer offsets have a table of their own kind."""
