"""From a producer's messages to drafts of records, every limit checked. The hot path: one pass over each batch."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.delays import MAX_WAITING_PROPERTIES_BYTES, SYSTEM_TOPICS, waiting
from dittomq.errors import InvalidField, MessageTooLarge, PermissionDenied, QueueNotFound, Refused
from dittomq.message import MAX_BATCH_BYTES, MAX_BODY_BYTES, MAX_ORDER_KEY_CHARACTERS, MAX_PROPERTIES_BYTES, Draft, DraftBatch, DraftRuns
from dittomq.metadata.topics import TopicConfig, find_topic
from dittomq.properties import NAME_END, PROPERTY_END, check_property, encode_properties, tags_code
from dittomq.routes import PERMISSION_WRITE

_EASY_TAG_CHARACTERS = 128
_LEAST_IN_RUNS = 16  # of fewer messages each is looked at by itself, and more than once


class MessageRefused(Exception):
    """One message of a batch is refused; `cause` says why, `index` which."""

    def __init__(self, index: int, cause: Refused) -> None:
        super().__init__(str(cause))
        self.index = index
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Topics:
    """What decoding needs to know: the topics of this broker, whose turn a queue is, and the time."""

    known: Mapping[str, TopicConfig]
    node: str
    next_queue: Callable[[str, int], int]
    now_ms: int


def drafts_of(messages: Iterable[pb.Message], producer_id: str, sequence: int, topics: Topics) -> tuple[list[Draft], int]:
    """And the bytes of all bodies and properties. Takes no work on what comes behind the batch's limit."""
    drafts: list[Draft] = []
    size = 0
    last_name, config = "", None
    prefix = _identity(producer_id)
    now_ms, make = topics.now_ms, tuple.__new__
    for index, message in enumerate(messages):
        name = message.topic
        if config is None or name != last_name:
            config, last_name = _writable(name, index, topics), name
        body = message.body or (message.text.encode() if message.HasField("text") else b"")
        if len(body) > MAX_BODY_BYTES:
            raise MessageRefused(index, MessageTooLarge("the body", len(body), MAX_BODY_BYTES))
        queue = message.queue
        if not queue and not message.HasField("queue"):  # asked last: it costs more than the queue itself
            queue = _queue_of(message.order_key, index, config, topics)
        if not 0 <= queue < config.write_queues:
            raise MessageRefused(index, QueueNotFound(name, queue, config.write_queues))
        properties = prefix + b"%d\x02" % (sequence + index) if producer_id else b""
        tag = message.tag
        if tag or message.keys or message.properties:
            try:
                properties += _properties(message)
            except Refused as refused:
                raise MessageRefused(index, refused) from refused
        code = tags_code(tag) if tag else 0
        draft = make(Draft, (name, queue, message.flag, message.born_ms or now_ms, body, properties, code))
        if message.delay_ms or message.deliver_ms:
            draft = _waiting(draft, index, message, now_ms)
        size += len(body) + len(draft.properties)
        if size > MAX_BATCH_BYTES:
            raise MessageTooLarge(f"the frame up to message {index}", size, MAX_BATCH_BYTES)
        drafts.append(draft)
    return drafts, size


def drafts_of_runs(runs: Sequence[pb.MessageRun], producer_id: str, sequence: int, topics: Topics) -> tuple[Sequence[Draft], int]:
    """The same of runs. As soon as something needs a closer look, all is spelled out, message by message."""
    found: list[DraftBatch] = []
    count = size = 0
    prefix = _identity(producer_id)
    for run in runs:
        name, queue, tag, bodies = run.topic, run.queue, run.tag, list(run.bodies)
        if not bodies:
            continue
        config = _writable(name, count, topics)
        named = run.HasField("queue") and 0 <= queue < config.write_queues
        easy = len(tag) <= _EASY_TAG_CHARACTERS and NAME_END not in tag and PROPERTY_END not in tag
        if not (named and easy) or max(map(len, bodies)) > MAX_BODY_BYTES:
            return drafts_of(_spelled_out(runs), producer_id, sequence, topics)
        code, common = (tags_code(tag), encode_properties((), tag, {})) if tag else (0, b"")
        numbers = range(sequence + count, sequence + count + len(bodies))
        properties = [b"%b%d\x02%b" % (prefix, number, common) for number in numbers] if prefix else [common] * len(bodies)
        size += sum(map(len, bodies)) + sum(map(len, properties))
        if size > MAX_BATCH_BYTES:
            return drafts_of(_spelled_out(runs), producer_id, sequence, topics)
        count += len(bodies)
        found.append(DraftBatch(name, queue, topics.now_ms, bodies, properties, code))
    return DraftRuns(found) if count >= _LEAST_IN_RUNS else [draft for run in found for draft in run.each()], size


def _spelled_out(runs: Iterable[pb.MessageRun]) -> Iterator[pb.Message]:
    """One message after the other, always the same object."""
    for run in runs:
        message = pb.Message(topic=run.topic, tag=run.tag, queue=run.queue if run.HasField("queue") else None)
        for body in run.bodies:
            message.body = body
            yield message


def _identity(producer_id: str) -> bytes:
    """What stands before a message's sequence in its properties; empty without an identity."""
    return f"PID\x01{producer_id}\x02SEQ\x01".encode() if producer_id else b""


def _waiting(draft: Draft, index: int, message: pb.Message, now_ms: int) -> Draft:
    """The draft of a message that is not to be read at once."""
    try:
        found = waiting(draft, message.delay_ms, message.deliver_ms, now_ms)
        if len(found.properties) > MAX_WAITING_PROPERTIES_BYTES:
            raise MessageTooLarge("the properties of a delayed message", len(found.properties), MAX_WAITING_PROPERTIES_BYTES)
    except Refused as refused:
        raise MessageRefused(index, refused) from refused
    return found


def _writable(name: str, index: int, topics: Topics) -> TopicConfig:
    if name in SYSTEM_TOPICS:
        problem = f'topic "{name}" is the system\'s own; publish to another one, with a delay if the message is to wait'
        raise MessageRefused(index, PermissionDenied(problem))
    try:
        config = find_topic(topics.known, name, topics.node)
    except Refused as refused:
        raise MessageRefused(index, refused) from refused
    if not config.permission & PERMISSION_WRITE:
        raise MessageRefused(
            index, PermissionDenied(f'topic "{name}" takes no writes: its permission is {config.permission}, writing needs bit 2')
        )
    return config


def _queue_of(order_key: str, index: int, config: TopicConfig, topics: Topics) -> int:
    if order_key:
        if len(order_key) > MAX_ORDER_KEY_CHARACTERS:
            problem = f"has {len(order_key):,} characters; use at most {MAX_ORDER_KEY_CHARACTERS:,}"
            raise MessageRefused(index, InvalidField("order_key", problem))
        return zlib.crc32(order_key.encode()) % config.write_queues
    return topics.next_queue(config.name, config.write_queues)


def _properties(message: pb.Message) -> bytes:
    keys, extra = message.keys, message.properties
    _check_size(keys, message.tag, extra)
    for key in keys:
        if not key or " " in key:
            raise InvalidField("keys", "a key is not empty and holds no space")
    for name, value in extra.items():
        check_property(name, value)
    return encode_properties(tuple(keys), message.tag, dict(extra))


def _check_size(keys: Sequence[str], tag: str, extra: Mapping[str, str]) -> None:
    """Refuse, before any work on them, properties that no record has room for. The appender, which knows all bytes, is exact."""
    least = len(tag) + 2 * len(keys) + 4 * len(extra)  # each is one character at least, and one more on the disk
    if least <= MAX_PROPERTIES_BYTES:
        least = len(tag) + sum(len(key) + 1 for key in keys) + sum(len(name) + len(value) + 2 for name, value in extra.items())
    if least > MAX_PROPERTIES_BYTES:
        raise MessageTooLarge("keys, tag and properties together", least, MAX_PROPERTIES_BYTES)
