"""What must hold of consumer groups in the end: what members were told is held against what the queues hold."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from dittomq.message import StoredMessage
from tests.simulation.group_clients import SHARED, GroupHistory, HandedOut
from tests.simulation.invariants import Broken, Invariant

Queues = Mapping[tuple[str, int], Sequence[StoredMessage]]
_SKEW_MS = 4_500  # clocks of two nodes differ by 4 s at most


def unhandled(history: GroupHistory, queues: Queues, reset: float | None) -> Iterator[Broken]:
    """Messages that nobody has dealt with, or not since their group was `reset`."""
    for (topic, queue), messages in queues.items():
        for message in messages:
            done = history.acknowledged.get(message.body)
            where = f"{topic} queue {queue} offset {message.queue_offset}"
            if done is None:
                yield Broken(Invariant.I16, f"nobody of the group has dealt with {where}")
            elif topic == SHARED and reset is not None and done < reset:
                yield Broken(Invariant.I16, f"nobody of the group was given {where} again since the reset at {reset:.3f}")


def check_groups(history: GroupHistory, queues: Queues) -> Iterator[Broken]:
    """Of a run that is over, and that has dealt with all."""
    yield from _out_of_turn(history, queues)
    yield from _wrong_deliveries(history, queues)


def _out_of_turn(history: GroupHistory, queues: Queues) -> Iterator[Broken]:
    """A queue's messages are handed out first in the queue's order, none before one that lies ahead of it."""
    firsts: dict[int, list[HandedOut]] = defaultdict(list)
    newest: dict[int, int] = {}
    for each in history.handed:
        if each.retries == 0 and each.offset > newest.get(each.queue, -1):
            newest[each.queue] = each.offset
            firsts[each.queue].append(each)
    for queue, handed in firsts.items():
        wanted = [message.queue_offset for message in queues[SHARED, queue]]
        for each, offset in zip(handed, wanted, strict=False):
            if each.offset != offset:
                what = f"{each.life} got {SHARED} queue {queue} offset {each.offset} at {each.at:.3f}, before the group had got {offset}"
                yield Broken(Invariant.I17, what)
                break


def _wrong_deliveries(history: GroupHistory, queues: Queues) -> Iterator[Broken]:
    """What waited came once, and not early; what was cancelled or rolled back never."""
    held = [message for messages in queues.values() for message in messages]
    counts, first = Counter(message.body for message in held), {message.body: message for message in reversed(held)}
    for each in history.waiting:
        count, name = counts[each.body], f"message {each.body.decode()}"
        if count > 1:
            yield Broken(Invariant.I18, f"{name} has waited once and is delivered {count} times")
        if count and each.is_due is False:
            yield Broken(Invariant.I18, f"{name} is delivered, and was cancelled or rolled back")
        if not count and each.is_due:
            yield Broken(Invariant.I18, f"{name} was to be delivered, and is not")
        if count and first[each.body].store_ms < each.not_before_ms - _SKEW_MS:
            yield Broken(Invariant.I18, f"{name} came {each.not_before_ms - first[each.body].store_ms:,.0f} ms early")
