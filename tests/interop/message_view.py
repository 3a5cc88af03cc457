"""A message as any of the parties tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from dittomq.client import Message, Receipt
from dittomq.message import StoredMessage
from dittomq.properties import OURS
from tests.interop.peer import Line

# The Java client adds the first two to what is stored; tag and keys are compared by themselves.
_LEFT_OUT = OURS | {"MIN_OFFSET", "MAX_OFFSET"}


@dataclass(frozen=True, slots=True)
class Seen:
    """Where it lies and what it says; `properties` without those that the product or the Java client adds. Comparable in log order."""

    position: int
    topic: str
    queue: int
    queue_offset: int
    size: int
    store_ms: int
    born_ms: int
    flag: int
    body: bytes
    tag: str
    keys: str
    properties: Mapping[str, str]

    @property
    def end(self) -> int:
        """Where the next record begins, unless a mark does."""
        return self.position + self.size

    @classmethod
    def published(cls, message: Message, receipt: Receipt) -> Self:
        """What our producer sent and was told."""
        return cls(
            receipt.physical_offset, message.topic, receipt.queue, receipt.queue_offset, receipt.record_bytes, receipt.store_ms,
            message.born_ms, message.flag, message.body, message.tag, " ".join(message.keys), message.properties,
        )  # fmt: skip

    @classmethod
    def stored(cls, message: StoredMessage) -> Self:
        """What our reader gets."""
        return cls(
            message.physical_offset, message.topic, message.queue, message.queue_offset, message.record_bytes, message.store_ms,
            message.born_ms, message.flag, message.body, message.tag, " ".join(message.keys), message.properties,
        )  # fmt: skip

    @classmethod
    def pulled(cls, line: Line) -> Self:
        """What the Java client gets."""
        properties = {name: value for name, value in line["properties"].items() if name not in _LEFT_OUT}
        return cls(
            line["position"], line["topic"], line["queue"], line["queueOffset"], line["size"], line["storeMs"],
            line["bornMs"], line["flag"], line["body"], line["tag"] or "", line["keys"] or "", properties,
        )  # fmt: skip


def in_log_order(messages: "list[Seen]") -> list[Seen]:
    """By position."""
    return sorted(messages, key=lambda seen: seen.position)
