"""Rows of the tables of consumer groups and of progress, with RocketMQ's fields and defaults. Topics: `dittomq.metadata.topics`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Json = None | bool | int | float | str | list["Json"] | dict[str | int, "Json"]
"""A value of RocketMQ's files; integer keys are those written without quotes."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A consumer group. `other_fields`: what RocketMQ's file holds and we have no field for; kept as it is.

    `incarnation` tells it from a group of that name that was deleted; 0: RocketMQ made it, or a version without incarnations.
    """

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict)
    other_fields: Mapping[str | int, Json] = field(default_factory=dict)
    incarnation: int = 0

    @property
    def key(self) -> str:
        """Rows are sorted and found by it."""
        return self.name


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """The next queue offset that a consumer group reads from one queue.

    `resets`: how often it was reset. `incarnation` is that of the group that committed it.
    """

    topic: str
    group: str
    queue: int
    offset: int
    resets: int = 0
    incarnation: int = 0

    @property
    def key(self) -> tuple[str, str, int]:
        """Rows are sorted and found by it."""
        return self.topic, self.group, self.queue


@dataclass(frozen=True, slots=True)
class DelayOffset:
    """The next queue offset of the schedule topic that one delay level delivers.

    `rocketmq_offset` is where RocketMQ left it: its copies in the log do not say of what they are, ours do.
    """

    level: int
    offset: int
    rocketmq_offset: int

    @property
    def key(self) -> int:
        """Rows are sorted and found by it."""
        return self.level
