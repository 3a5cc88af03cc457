"""Messages that are sent while a broker is killed: numbered in each queue, so that what was stored of them can be judged."""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.interop.message_view import Seen, in_log_order

LOAD_QUEUES = 4
# Long to write: the kill may well find one half there.
BODY_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Load:
    """What a producer was told before the kill: queue, queue offset and number of each message that was acknowledged."""

    topic: str
    acknowledged: frozenset[tuple[int, int, int]]

    def judge(self, read: Iterable[Seen]) -> str:
        """What is wrong with the messages that the other side reads; empty when nothing is.

        All that were acknowledged are there, and nothing that was not sent. The others may be there: their producer was told nothing.
        """
        mine = in_log_order([each for each in read if each.topic == self.topic])
        places = {(each.queue, each.queue_offset, number_of(each)) for each in mine}
        if lost := self.acknowledged - places:
            return f"of {len(self.acknowledged)} acknowledged messages {len(lost)} are lost, the first at {min(lost)}"
        if strange := [each.position for each in mine if each.body != body_of(number_of(each))]:
            return f"the messages at {strange} were not sent so"
        for queue in range(LOAD_QUEUES):
            offsets = [each.queue_offset for each in mine if each.queue == queue]
            numbers = [number_of(each) for each in mine if each.queue == queue]
            if offsets != list(range(len(offsets))) or numbers != sorted(set(numbers)):
                return f"queue {queue} holds numbers {numbers} at {offsets}"
        return ""


def body_of(number: int) -> bytes:
    """What is sent under a number."""
    return b"%d:" % number + b"." * BODY_BYTES


def number_of(message: Seen) -> int:
    """Under which number it was sent; -1 for none."""
    digits = message.body.partition(b":")[0]
    return int(digits) if digits.isdigit() else -1
