"""What becomes of a message that a member could not handle: another try after a growing delay, and at last the dead letters.

Source: RocketMQ's SendMessageProcessor#consumerSendMsgBack.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
FIRST_LEVEL: Final = 3  # of RocketMQ's delays, counted from 1: 10 s

RETRY_TOPIC: Final = "RETRY_TOPIC"
"""Property: the topic that the message was published to."""
RECONSUME_TIME: Final = "RECONSUME_TIME"
"""Property: how many tries came before."""
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""Property: RocketMQ's id of the message as it was published."""


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Another try. `level` is one of the delays, counted from 1; 0: at once."""

    level: int
    times: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """No other try: it goes to the dead letters, after so many tries."""

    times: int


def decide_retry(times: int, max_times: int, levels: int, *, level: int | None = None) -> RetryAfter | DeadLetter:
    """`times`: tries before this one that failed too. `level` None: the delay grows with the tries; a negative one gives it up at once.

    `levels` is how many delays there are: the last of them is the longest.
    """
    if times >= max_times or (level is not None and level < 0):
        return DeadLetter(times)
    return RetryAfter(min(FIRST_LEVEL + times if level is None else level, levels), times + 1)


def retry_topic(group: str) -> str:
    """Where the group's next tries lie."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Where what the group gave up lies."""
    return DEAD_LETTER_PREFIX + group


def tries_before(properties: Mapping[str, str]) -> int:
    """How many tries came before, as the message says; 0 for one that is read for the first time, or that says nothing sensible."""
    text = properties.get(RECONSUME_TIME, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
