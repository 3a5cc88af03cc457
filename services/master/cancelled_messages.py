"""The records that cancel delayed messages, and which of them still mean something.

A message that is cancelled hops no more, so the record that it waited in then is its last one: with its queue's end of delivery it says
whether the message is passed. So a new master need not know the cancellations of all messages in its log.
"""

from collections.abc import Iterable, Iterator, Mapping

from dittomq.delays import CANCEL_TOPIC
from dittomq.message import Draft, StoredMessage
from dittomq.properties import encode_properties


def cancellation_of(origin: int, place: StoredMessage, now_ms: int) -> Draft:
    """The record that cancels a message whose first record lies at `origin`, and whose newest one is `place`."""
    body = f"{place.queue_offset} {place.queue} {place.topic}"
    return Draft(CANCEL_TOPIC, 0, 0, now_ms, body.encode(), encode_properties((str(origin),), "", {}), 0)


def still_cancelled(cancellations: Iterable[StoredMessage], ends: Mapping[tuple[str, int], int]) -> Iterator[int]:
    """Where the first records lie of those messages that are not passed yet; `ends`: up to where each queue is delivered."""
    for record in cancellations:
        offset, queue, topic = record.body.decode().split(" ")
        if int(offset) >= ends.get((topic, int(queue)), 0):
            yield int(record.keys[0])
