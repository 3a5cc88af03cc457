"""Delayed messages: how RocketMQ and we keep them, and what brokers and clients agree on.

A delayed message lies in the schedule topic, in the queue of its level, until it is due; its own topic and queue are properties. The
copy that is delivered then is a record of a *system producer*, one for each queue that messages wait in: its sequence is the offset there.
So every replica derives from its own log how far a queue is delivered, as it derives the sequences of any producer.

RocketMQ knows 18 delays. For any other due time a message lies in the timer topic, whose queues have a fixed delay each too, every one 9 %
longer than the one before it. It waits in the queue of the longest delay that fits, and hops into the next one that fits then: three or
four queues for a minute. So no record of it grows older than the longest of these delays, however far ahead it is due.

Source: Apache RocketMQ, MessageStoreConfig#messageDelayLevel, HookUtils#handleScheduleMessage, ScheduleMessageService#messageTimeup.
"""

from bisect import bisect_right
from collections.abc import Mapping
from math import log2
from typing import Final

from dittomq.errors import InvalidField
from dittomq.message import MAX_PROPERTIES_BYTES, Draft, StoredMessage

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
LEVEL_DELAYS_S: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""Seconds, level 1 first."""
LEVELS: Final = len(LEVEL_DELAYS_S)

DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE: Final = "REAL_QID"
TIMER_TOPIC: Final = "rmq_sys_dittomq_timer"
_LEAST_TIMER_MS: Final = 32
_MOST_TIMER_MS: Final = 4 * 3_600_000
TIMER_DELAYS_MS: Final = tuple(
    round(_LEAST_TIMER_MS * 2 ** (step / 8)) for step in range(int(8 * log2(_MOST_TIMER_MS / _LEAST_TIMER_MS)) + 1)
)
"""Milliseconds, queue 0 first."""
MAX_DELAY_MS: Final = 40 * 86_400_000
DUE: Final = "DITTO_DUE"
ORIGIN: Final = "DITTO_ORIGIN"
WAITING_KEYS: Final = "DITTO_KEYS"

CANCEL_TOPIC: Final = "rmq_sys_dittomq_cancel"
"""A record for each cancellation, its key the place of the first record of the message that is never to be delivered."""

OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""A record for each transaction that has ended; what was committed is delivered at once (`dittomq.transactions`)."""
OUTCOME: Final = "DITTO_OUTCOME"

SYSTEM_TOPICS: Final = frozenset(
    {SCHEDULE_TOPIC, TIMER_TOPIC, CANCEL_TOPIC, OP_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"}
)
"""Only brokers write to them."""
WAITING_PROPERTIES: Final = frozenset({DELAY, REAL_TOPIC, REAL_QUEUE, DUE, ORIGIN, WAITING_KEYS, OUTCOME, "TRAN_MSG", "PGROUP"})
"""What a message has while it waits, and its delivered copy has not."""
DELAY_QUEUES: Final = (
    *((SCHEDULE_TOPIC, level, seconds * 1_000) for level, seconds in enumerate(LEVEL_DELAYS_S)),
    *((TIMER_TOPIC, queue, delay_ms) for queue, delay_ms in enumerate(TIMER_DELAYS_MS)),
    (OP_TOPIC, 0, 0),
)
"""All queues in which messages wait: topic, queue, and its delay in ms."""
QUEUES_OF: Final = {SCHEDULE_TOPIC: LEVELS, TIMER_TOPIC: len(TIMER_DELAYS_MS), CANCEL_TOPIC: 1, OP_TOPIC: 1}
MAX_WAITING_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - 512
"""So that the delivered copy, which has another producer's identity, always has room."""

_SYSTEM_MARK: Final = "%"
_LEVEL_OF_MS: Final = {seconds * 1_000: level for level, seconds in enumerate(LEVEL_DELAYS_S, 1)}


def level_delay_ms(level: int) -> int:
    """How long messages of that level wait; RocketMQ takes a level beyond the last for the last."""
    return LEVEL_DELAYS_S[min(level, LEVELS) - 1] * 1_000


def check_wait(delay_ms: int, deliver_ms: int) -> None:
    """Refuse what no message can wait for; whether `deliver_ms` is too far ahead the broker knows. 0: not asked for."""
    if delay_ms and deliver_ms:
        raise InvalidField("deliver_ms", "a message has a delay or a time of delivery, not both")
    if not 0 <= delay_ms <= MAX_DELAY_MS:
        raise InvalidField("delay_ms", f"{delay_ms:,} is outside 0 to {MAX_DELAY_MS:,}, which is 40 days")
    if deliver_ms < 0:
        raise InvalidField("deliver_ms", f"{deliver_ms:,} is before 1970")


def waiting(draft: Draft, delay_ms: int, deliver_ms: int, now_ms: int) -> Draft:
    """The draft of the same message that waits so long, or until then; the same one where it need not wait. Raises InvalidField."""
    check_wait(delay_ms, deliver_ms)
    if level := _LEVEL_OF_MS.get(delay_ms):
        return schedule(draft, level)
    due_ms = deliver_ms or now_ms + delay_ms
    if due_ms - now_ms > MAX_DELAY_MS:
        raise InvalidField("deliver_ms", f"{due_ms:,} is more than 40 days after the broker's {now_ms:,}")
    if due_ms <= now_ms:
        return draft
    properties = f"{DUE}\x01{due_ms}\x02{REAL_TOPIC}\x01{draft.topic}\x02{REAL_QUEUE}\x01{draft.queue}\x02"
    return draft._replace(topic=TIMER_TOPIC, queue=timer_queue(due_ms - now_ms), properties=draft.properties + properties.encode())


def timer_queue(remaining_ms: int) -> int:
    """The queue of the timer topic in which a message waits that is due in so long: of the longest delay that fits, else the shortest."""
    return max(0, bisect_right(TIMER_DELAYS_MS, remaining_ms) - 1)


def due_in(properties: Mapping[str, str]) -> int:
    """When a message of the timer topic is due, ms since 1970; 0 where nothing says so."""
    return _number(properties.get(DUE, ""))


def origin_of(message: StoredMessage) -> int:
    """Where the first record of a waiting message lies: that is its name for as long as it waits."""
    return _number(message.properties.get(ORIGIN, "")) or message.physical_offset


def schedule(draft: Draft, level: int) -> Draft:
    """The draft of the same message that waits at that level, 1 to LEVELS, for its topic and queue."""
    waiting = f"{DELAY}\x01{level}\x02{REAL_TOPIC}\x01{draft.topic}\x02{REAL_QUEUE}\x01{draft.queue}\x02"
    return draft._replace(topic=SCHEDULE_TOPIC, queue=level - 1, properties=draft.properties + waiting.encode(), tags_code=0)


def level_in(properties: Mapping[str, str]) -> int:
    """The level of a message that lies in the schedule topic; 0 when it names none."""
    text = properties.get(DELAY, "")
    return _number(text) if len(text) <= 10 else 0


def system_producer(topic: str, queue: int) -> str:
    """The id under which the messages of that queue are delivered. No client may use one like it."""
    return f"{_SYSTEM_MARK}{topic}{_SYSTEM_MARK}{queue}"


def is_system_producer(producer_id: str) -> bool:
    """Whether it is one of those."""
    return producer_id.startswith(_SYSTEM_MARK)


def _number(text: str) -> int:
    """The number that a property holds; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0
