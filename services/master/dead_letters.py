"""Dead letters once more: copies in the group's retry topic, which its members read.

A call stores all of its copies or none, and answers when they are confirmed. The dead letters stay: a call that is repeated stores more
copies.
"""

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dittomq.broker.dead_letters import DeadLetterReads
from dittomq.broker.topics import MasterTopics
from dittomq.consumer.dead_letters import (
    DeadLetterMessage,
    DeadLetterPage,
    LetterPlace,
    ReplayedLetter,
    ReplayOrder,
    ReplayResult,
    replayed_properties,
)
from dittomq.consumer.retries import retry_topic
from dittomq.metadata.topics import TopicConfig
from dittomq.wire.publishing import PublishOrder
from services.master.produce import ProduceHandler
from services.master.send_back import confirmed, copied_to, read_queues_of
from services.master.term import Term

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MasterReplays:
    """Replays dead letters, for one master."""

    reads: DeadLetterReads
    topics: MasterTopics
    appends: ProduceHandler
    leading_term: Callable[[], Term]

    async def replay(self, order: ReplayOrder) -> ReplayResult:
        """Return when all copies are confirmed.

        Raises what DeadLetterReads raises, another Refused when nothing is stored, and FencedEpoch when nobody knows.
        """
        self.leading_term()
        group = self.reads.offsets.find_group(order.query.group, self.reads.rules)
        page = await self._page(order)
        topic = retry_topic(group.name)
        if page.letters and not order.validate_only:
            await self.topics.add_system(TopicConfig(topic, group.retry_queues, group.retry_queues))
        queues = read_queues_of(self.topics, topic, group.retry_queues)
        placed = [_placed(letter, queues) for letter in page.letters]
        if placed and not order.validate_only:
            drafts = [
                copied_to(letter.message, topic, copy.retry_queue, replayed_properties(letter.message.properties))
                for letter, copy in zip(page.letters, placed, strict=True)
            ]
            await confirmed(await self.appends.begin(PublishOrder.of_broker(drafts)))
            log.info("dead_letters_replayed", group=group.name, count=len(drafts))
        return ReplayResult(tuple(placed), page.next_token)

    async def _page(self, order: ReplayOrder) -> DeadLetterPage:
        if order.only is None:
            return await self.reads.page(order.query)
        return DeadLetterPage((await self.reads.one(order.query.group, order.only),), "")


def _placed(letter: DeadLetterMessage, queues: int) -> ReplayedLetter:
    place = LetterPlace(letter.message.queue, letter.message.queue_offset)
    return ReplayedLetter(place, place.offset % queues)
