"""What `consume --follow` remembers of what it has printed, and what it reads once more."""

import pytest

from dittomq.cli.trail import Trail
from dittomq.client import Page
from dittomq.errors import CorruptRecord, OffsetOutOfRange
from dittomq.message import StoredMessage
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset

RECORD = 100


def message(offset: int, body: str) -> StoredMessage:
    at = PhysicalOffset(offset * RECORD)
    return StoredMessage("orders", 0, QueueOffset(offset), at, RECORD, body.encode(), (), "", {}, 0, 0, 7)


class Queue:
    """One copy's queue: a body for each offset from `first` on."""

    def __init__(self, *bodies: str, first: int = 0, node: str = "a/1", epoch: int = 1) -> None:
        self.bodies = dict(enumerate(bodies, first))
        self.end = first + len(bodies)
        self.node = node
        self.epoch = epoch

    def page(self, offset: int, most: int = 4, confirmed: int = 1 << 40) -> Page:
        found = tuple(message(each, self.bodies[each]) for each in range(offset, min(self.end, offset + most)))
        undone = next((each.queue_offset for each in found if each.physical_offset >= confirmed), None)
        following = QueueOffset(offset + len(found))
        low, high = QueueOffset(min(self.bodies, default=self.end)), QueueOffset(self.end)
        return Page(found, following, low, high, PhysicalOffset(confirmed), undone, self.node, Epoch(self.epoch))


def printed(trail: Trail, queue: Queue, offset: int = 0) -> list[str]:
    """What is printed of a queue from an offset on until it ends, and in between where others were said to lie: "!" and the offset."""
    said: list[str] = []
    while True:
        page = queue.page(offset)
        again = trail.look_again(page, offset)
        if again is not None:
            said.append(f"<{again}")
            offset = again
            continue
        fresh, other_from, _ = trail.take(page)
        said += [f"!{other_from}"] if other_from is not None else []
        said += [each.body.decode() for each in fresh]
        if page.next_offset == offset:
            return said
        offset = page.next_offset


def follow(*bodies: str) -> tuple[Trail, Queue]:
    """These are printed."""
    trail, queue = Trail(), Queue(*bodies)
    assert printed(trail, queue) == list(bodies)
    return trail, queue


@pytest.mark.parametrize(("node", "epoch"), [("a/2", 1), ("a/1", 2)])
def test_another_copy_or_epoch_with_the_same_log_costs_the_newest_page_only(node: str, epoch: int) -> None:
    trail, _ = follow(*"abcdefghij")

    assert printed(trail, Queue(*"abcdefghijk", node=node, epoch=epoch), 10) == ["<7", "k"]


def test_the_same_copy_in_the_same_epoch_is_believed() -> None:
    trail, _ = follow(*"abcdef")

    assert printed(trail, Queue(*"abcdefgh"), 6) == ["g", "h"]


@pytest.mark.parametrize("same", [1, 5, 7, 8])
def test_wherever_another_log_parts_from_the_printed_one_it_is_printed_from_there(same: int) -> None:
    trail, queue = follow(*"abcdefghij")
    other = [*list(queue.bodies.values())[:same], *"ABCDEFGHIJ"]

    assert [each for each in printed(trail, Queue(*other, epoch=2), 10) if not each.startswith("<")] == [f"!{same}", *"ABCDEFGHIJ"]


def test_page_of_the_next_log_does_not_hide_what_lies_before_it() -> None:
    """A waiting pull brought the page."""
    trail, _ = follow(*"abcdefghij")
    other = Queue(*"abcdeFGHIJKLM")

    assert printed(trail, other, 10) == ["K", "L", "M"]  # asked in the old epoch
    other.epoch = 2
    assert [each for each in printed(trail, other, 13) if not each.startswith("<")] == ["!5", *"FGHIJKLM"]


def test_a_shorter_log_is_compared_as_far_as_it_goes_and_again_when_it_grows() -> None:
    trail, _ = follow(*"abcdefghij")

    assert printed(trail, Queue(*"abcde", epoch=2), 10) == ["<0"]
    assert printed(trail, Queue(*"abcdeFG", epoch=2), 5) == ["!5", "F", "G"]


def test_what_was_shown_without_a_master_is_compared_when_more_is_confirmed() -> None:
    trail = Trail()
    queue = Queue(*"abcd")
    trail.take(queue.page(0, confirmed=2 * RECORD))

    assert trail.look_again(queue.page(4, confirmed=2 * RECORD), 4) is None
    assert trail.look_again(queue.page(4, confirmed=4 * RECORD), 4) == 0


def test_what_retention_dropped_of_the_printed_keeps_nobody_from_comparing_the_rest() -> None:
    trail, _ = follow(*"abcd")

    assert trail.pass_over(0, OffsetOutOfRange("queue offset", 0, 2, 9)) == 2
    assert printed(trail, Queue(*"CDEFG", first=2, epoch=2), 2) == ["!2", *"CDEFG"]
    assert trail.pass_over(2, OffsetOutOfRange("queue offset", 2, 99, 99)) == 7


def test_a_printed_message_that_is_no_more_whole_is_compared_no_more() -> None:
    trail, _ = follow(*"abcdefgh")

    assert trail.pass_over(3, CorruptRecord("a/1", 3 * RECORD, "its checksum is wrong")) == 4
    assert printed(trail, Queue(*"abcXefgh", epoch=2), 8) == ["<2"]


def test_earlier_messages_beyond_memory_are_reported_as_possibly_other() -> None:
    trail, _ = follow(*["a"] * 2_000)
    page = Queue(*["b"] * 2_000, epoch=2).page(2_000)

    assert trail.look_again(page, 2_000) == 1_995
    assert trail.look_again(Queue(*["b"] * 2_000, epoch=2).page(1_995), 1_995) == 976
    assert trail.take(Queue(*["b"] * 2_000, epoch=2).page(976))[1:] == (976, True)


def test_of_all_that_was_printed_the_first_one_that_is_another_is_known() -> None:
    trail, _ = follow(*"abcd")

    assert trail.take(Queue(*"ABCD", epoch=2).page(0))[1:] == (0, False)


def test_what_is_forgotten_for_other_messages_was_the_same() -> None:
    trail, _ = follow(*"abcd")

    assert trail.take(Queue(*"ab", *["B"] * 1_024, epoch=2).page(0, most=2_000))[1:] == (2, False)
