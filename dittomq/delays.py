"""Delayed messages: how RocketMQ keeps them, and what brokers and clients agree on.

A delayed message lies in the schedule topic, in the queue of its level, until it is due; its own topic and queue are properties. The
copy that is delivered then is a record of a *system producer*, one for each queue that messages wait in: its sequence is the offset there.
So every replica derives from its own log how far a queue is delivered, as it derives the sequences of any producer.

Source: Apache RocketMQ, MessageStoreConfig#messageDelayLevel, HookUtils#handleScheduleMessage, ScheduleMessageService#messageTimeup.
"""

from collections.abc import Mapping
from typing import Final

from dittomq.errors import InvalidField
from dittomq.message import MAX_PROPERTIES_BYTES, Draft

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
LEVEL_DELAYS_S: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""Seconds, level 1 first."""
LEVELS: Final = len(LEVEL_DELAYS_S)

DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
WAITING_PROPERTIES: Final = frozenset({DELAY, REAL_TOPIC, REAL_QUEUE})
"""What a message has while it waits, and its delivered copy has not."""

SYSTEM_TOPICS: Final = frozenset({SCHEDULE_TOPIC})
"""Only brokers write to them."""
MAX_WAITING_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - 512
"""So that the delivered copy, which has another producer's identity, always has room."""

_SYSTEM_MARK: Final = "%"
_LEVEL_OF_MS: Final = {seconds * 1_000: level for level, seconds in enumerate(LEVEL_DELAYS_S, 1)}


def level_delay_ms(level: int) -> int:
    """How long messages of that level wait; RocketMQ takes a level beyond the last for the last."""
    return LEVEL_DELAYS_S[min(level, LEVELS) - 1] * 1_000


def level_of(delay_ms: int) -> int:
    """The level that waits exactly so long; InvalidField when there is none."""
    level = _LEVEL_OF_MS.get(delay_ms)
    if level is None:
        known = ", ".join(f"{seconds:,}" for seconds in LEVEL_DELAYS_S)
        raise InvalidField("delay_ms", f"{delay_ms:,} is no delay level; use one of {known} seconds")
    return level


def schedule(draft: Draft, level: int) -> Draft:
    """The draft of the same message that waits at that level, 1 to LEVELS, for its topic and queue."""
    waiting = f"{DELAY}\x01{level}\x02{REAL_TOPIC}\x01{draft.topic}\x02{REAL_QUEUE}\x01{draft.queue}\x02"
    return draft._replace(topic=SCHEDULE_TOPIC, queue=level - 1, properties=draft.properties + waiting.encode(), tags_code=0)


def level_in(properties: Mapping[str, str]) -> int:
    """The level of a message that lies in the schedule topic; 0 when it names none."""
    text = properties.get(DELAY, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else 0


def system_producer(topic: str, queue: int) -> str:
    """The id under which the messages of that queue are delivered. No client may use one like it."""
    return f"{_SYSTEM_MARK}{topic}{_SYSTEM_MARK}{queue}"


def is_system_producer(producer_id: str) -> bool:
    """Whether it is one of those."""
    return producer_id.startswith(_SYSTEM_MARK)
