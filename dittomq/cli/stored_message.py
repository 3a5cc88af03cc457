"""A message that was read, as `consume` prints it."""

import base64

from dittomq.cli.output import clock_time, printable, shown_body
from dittomq.message import StoredMessage


def message_line(broker: str, message: StoredMessage) -> str:
    """`a 3@0  14:03:01.204  o-17  {"id":"o-17"}`: broker group, queue@offset, store time, keys, body."""
    keys = printable(" ".join(message.keys)) or "-"
    place = f"{broker} {message.queue}@{message.queue_offset}"
    return f"{place}  {clock_time(message.store_ms, milliseconds=True)}  {keys}  {shown_body(message.body)}"


def message_document(broker: str, message: StoredMessage) -> dict[str, object]:
    """The same for programs: `text` where the body is UTF-8, otherwise `body` in base64."""
    try:
        content = {"text": message.body.decode()}
    except UnicodeDecodeError:
        content = {"body": base64.b64encode(message.body).decode()}
    return {
        "broker": broker,
        "topic": message.topic,
        "queue": message.queue,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "record_bytes": message.record_bytes,
        "store_ms": message.store_ms,
        "born_ms": message.born_ms,
        "keys": list(message.keys),
        "tag": message.tag,
        "properties": dict(message.properties),
        "flag": message.flag,
        **content,
    }
