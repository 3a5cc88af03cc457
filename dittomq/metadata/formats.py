"""The four tables as RocketMQ's files in `config/`: what is decoded and encoded again is equal, fields we do not know included."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from json.encoder import encode_basestring_ascii
from typing import Any, Generic, NamedTuple, TypeVar, cast

from dittomq.metadata import fastjson
from dittomq.metadata.made_of_rows import MadeOfRows
from dittomq.metadata.rows import ConsumerOffset, DelayOffset, GroupConfig, Json
from dittomq.metadata.tables import QueueMinimums, R, Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion

_TOPICS_FIELD = "topicConfigTable"
_GROUPS_FIELD = "subscriptionGroupTable"
_OFFSETS_FIELD = "offsetTable"

# Our own field of topics.json. RocketMQ reads past it and does not write it again; each node's store has its minimums too.
_MINIMUMS_FIELD = "dittomqQueueMinimums"

# Our own field of a group in subscriptionGroup.json, where it is not 0.
_INCARNATION_FIELD = "dittomqIncarnation"

OFFSET_INCARNATIONS_FIELD = "dittomqIncarnations"
"""Our own field of consumerOffset.json: topic@group → the incarnation of the group that committed it, where it is not 0."""
OFFSET_RESETS_FIELD = "dittomqResets"
"""The same: topic@group → queue → how often its offset was reset, where it was."""

# Our own field of delayOffset.json: level → where RocketMQ left it, where ours delivered since. RocketMQ does not write it again.
_ROCKETMQ_FIELD = "dittomqRocketmqOffsets"

# No longer than Java's long; more leading zeros than fit are no number.
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_MIN_INT, _MAX_INT = -(1 << 31), (1 << 31) - 1
_MIN_LONG, _MAX_LONG = -(1 << 63), (1 << 63) - 1

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

    `take_rows` takes from the file's fields those that hold rows, fields of ours among them; `own_fields` makes these.
    `one_line_each`: a row is one entry of `field`.
    """

    name: str
    path: str
    field: str
    take_rows: Callable[[Fields], Iterable[R]]
    encode_rows: Callable[[Iterable[R]], Fields]
    own_fields: Callable[[Iterable[R]], Fields] = lambda _: {}
    one_line_each: bool = False


def decode(kind: TableKind[R], data: bytes) -> Table[R]:
    """The table that the file's bytes hold; raises DamagedFile."""
    version, minimums, fields = fields_of(data)
    rows = sorted_rows(kind.take_rows(fields))
    return Table(version, rows, fields, minimums)


def fields_of(data: bytes) -> tuple[DataVersion, QueueMinimums, Fields]:
    """Version and minimums of any table's file, and its other fields; raises DamagedFile."""
    try:
        fields = fastjson.loads(data.decode("utf-8"))
    except ValueError as error:
        raise DamagedFile(f"is not JSON as RocketMQ writes it ({error})") from error
    if not isinstance(fields, dict):
        raise DamagedFile("holds no object")
    version = _decode_version(_take(fields, "dataVersion", dict, {}))
    return version, _decode_minimums(_take(fields, _MINIMUMS_FIELD, dict, {})), fields


def encode(kind: TableKind[R], table: Table[R]) -> bytes:
    """The file's bytes, a row a line."""
    return RowTexts(kind).encode(table)


class RowTexts(Generic[R]):
    """Encodes one version of a table after the other, and of its rows only those that are new since the last one."""

    def __init__(self, kind: TableKind[R]) -> None:
        self._kind = kind
        self._lines = MadeOfRows(self._line)

    def encode(self, table: Table[R]) -> bytes:
        """The file's bytes, a row a line."""
        kind, rows = self._kind, table.rows.values()
        version: Fields = {
            "counter": table.version.counter,
            "stateVersion": table.version.state_version,
            "timestamp": table.version.timestamp_ms,
        }
        fields: Fields = {**table.other_fields, "dataVersion": version, **kind.own_fields(rows)}
        if table.minimums:
            fields[_MINIMUMS_FIELD] = _encode_minimums(table.minimums)
        texts: dict[str, FieldText] = {str(name): field_text(value) for name, value in fields.items()}
        texts[kind.field] = self._lines.of(rows) if kind.one_line_each else field_text(kind.encode_rows(rows))
        return file_of(texts)

    def _line(self, row: R) -> bytes:
        return line_of(fastjson.dumps(self._kind.encode_rows([row]))[1:-1])


FieldText = bytes | Sequence[bytes]
"""What a file says of a field: its text, or the lines of an object."""


def field_text(value: Json) -> bytes:
    """An object has a line for each key."""
    return fastjson.dumps(value, 1, "\t").encode("ascii")


def line_of(entry: str) -> bytes:
    """A key and its value as a line of an object."""
    return f",\n\t\t{entry}".encode("ascii")


def file_of(fields: Mapping[str, FieldText]) -> bytes:
    """A file's bytes. Lines are copied once: they may be ten megabytes."""
    parts: list[bytes] = []
    for name in sorted(fields):
        text, begin = fields[name], f"{',' if parts else '{'}\n\t{encode_basestring_ascii(name)}:"
        if isinstance(text, bytes):
            parts += (begin.encode("ascii"), text)
        elif text:
            parts += (f"{begin}{{".encode("ascii"), text[0][1:])  # without its comma
            parts += text[1:]
            parts.append(b"\n\t}")
        else:
            parts.append(f"{begin}{{}}".encode("ascii"))
    return b"".join((*parts, b"\n}"))


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


def _take_named(field: str, make: Callable[..., R], name_field: str, columns: Columns) -> Callable[[Fields], Iterable[R]]:
    """Takes rows by name, each of which repeats its name in a field."""

    def take_rows(fields: Fields) -> Iterable[R]:
        for name, value in _take(fields, field, dict, {}).items():
            row = _object(name, value)
            row.pop(name_field, None)
            taken = {
                ours: _take_integer(row, theirs, default, bits) if bits else _take(row, theirs, type(default), default)
                for theirs, ours, default, bits in columns
            }
            yield make(name=str(name), **taken, attributes=_take_attributes(row), other_fields=row)

    return take_rows


def _encode_named(name_field: str, columns: Columns) -> Callable[[Iterable[TopicConfig | GroupConfig]], Fields]:
    def encode_row(row: TopicConfig | GroupConfig) -> Fields:
        known = {theirs: getattr(row, ours) for theirs, ours, _, _ in columns}
        if not known.get(_INCARNATION_FIELD, 1):
            del known[_INCARNATION_FIELD]
        known |= {"attributes": dict(row.attributes.items()), name_field: row.name}
        return {**row.other_fields, **dict(sorted(known.items()))}

    return lambda rows: {row.name: encode_row(row) for row in rows}


class NamedOffsets(NamedTuple):
    """Offsets of one group in one topic, by queue, as consumerOffset.json holds them. `resets` has only queues that were reset ever."""

    topic: str
    group: str
    incarnation: int
    offsets: dict[int, int]
    resets: dict[int, int]


def take_offsets(fields: Fields) -> Iterator[NamedOffsets]:
    """Take what they hold of offsets from the fields of consumerOffset.json; raises DamagedFile. No name is without an offset."""
    names = _take(fields, _OFFSETS_FIELD, dict, {})
    incarnations = _take(fields, OFFSET_INCARNATIONS_FIELD, dict, {})
    all_resets = _take(fields, OFFSET_RESETS_FIELD, dict, {})
    for key, value in names.items():
        topic, at, group = str(key).partition("@")
        if not at:
            raise DamagedFile(f"key {key!r} is not topic@group")
        offsets = _numbers_by_queue(key, _object(key, value))
        if not offsets:
            continue
        resets: dict[int, int] = {}
        if key in all_resets:
            of_queues = _object(key, all_resets[key])
            resets = {queue: times for queue in offsets if (times := _number(key, of_queues.get(queue, 0), 64))}
        yield NamedOffsets(topic, group, _number(key, incarnations.get(key, 0), 64), offsets, resets)


def _numbers_by_queue(name: str | int, values: Fields) -> dict[int, int]:
    """The same object where all is as our own files have it: a table may hold a million."""
    for queue, number in values.items():
        if type(queue) is not int or type(number) is not int or not (_MIN_INT <= queue <= _MAX_INT and _MIN_LONG <= number <= _MAX_LONG):
            return {_number(name, queue, 32): _number(name, number, 64) for queue, number in values.items()}
    return cast(dict[int, int], values)


def _take_offset_rows(fields: Fields) -> Iterable[ConsumerOffset]:
    for each in take_offsets(fields):
        for queue, offset in each.offsets.items():
            yield ConsumerOffset(each.topic, each.group, queue, offset, each.resets.get(queue, 0), each.incarnation)


def _encode_offsets(rows: Iterable[ConsumerOffset]) -> Fields:
    queues = ((f"{topic}@{group}", rows_of_one) for (topic, group), rows_of_one in groupby(rows, lambda row: (row.topic, row.group)))
    return {name: {row.queue: row.offset for row in rows_of_one} for name, rows_of_one in queues}


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


def _take_delays(fields: Fields) -> Iterable[DelayOffset]:
    left = {_number("level", level, 32): offset for level, offset in _take(fields, _ROCKETMQ_FIELD, dict, {}).items()}
    for name, offset in _take(fields, _OFFSETS_FIELD, dict, {}).items():
        level = _number("level", name, 32)
        yield DelayOffset(level, _number(name, offset, 64), _number(name, left.get(level, offset), 64))


def _encode_delays(rows: Iterable[DelayOffset]) -> Fields:
    return {row.level: row.offset for row in rows}


def _own_delay_fields(rows: Iterable[DelayOffset]) -> Fields:
    left: Fields = {row.level: row.rocketmq_offset for row in rows if row.rocketmq_offset != row.offset}
    return {_ROCKETMQ_FIELD: left} if left else {}


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
    _TOPICS_FIELD,
    _take_named(_TOPICS_FIELD, TopicConfig, "topicName", _TOPIC_COLUMNS),
    _encode_named("topicName", _TOPIC_COLUMNS),
    one_line_each=True,
)
GROUPS: TableKind[GroupConfig] = TableKind(
    "subscription groups",
    "config/subscriptionGroup.json",
    _GROUPS_FIELD,
    _take_named(_GROUPS_FIELD, GroupConfig, "groupName", _GROUP_COLUMNS),
    _encode_named("groupName", _GROUP_COLUMNS),
    one_line_each=True,
)
CONSUMER_OFFSETS: TableKind[ConsumerOffset] = TableKind(
    "consumer offsets", "config/consumerOffset.json", _OFFSETS_FIELD, _take_offset_rows, _encode_offsets, _own_offset_fields
)
DELAY_OFFSETS: TableKind[DelayOffset] = TableKind(
    "delay offsets", "config/delayOffset.json", _OFFSETS_FIELD, _take_delays, _encode_delays, _own_delay_fields
)

KINDS: tuple[TableKind[Any], ...] = (TOPICS, GROUPS, CONSUMER_OFFSETS, DELAY_OFFSETS)

WHOLE_KINDS: tuple[TableKind[Any], ...] = (TOPICS, GROUPS, DELAY_OFFSETS)
"""Those that change, and are pulled, as a whole; consumer offsets have a table of their own kind."""
