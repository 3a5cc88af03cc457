"""What a member commits is never past a message that it has not handled."""

from hypothesis import given
from hypothesis import strategies as st

from dittomq.client.handled_offsets import HandledOffsets


def test_commit_waits_for_the_lowest_message_not_handled() -> None:
    progress = HandledOffsets(10)
    for offset in (10, 11, 14):
        progress.deliver(offset)

    progress.handle(11)
    assert (progress.committable, progress.unhandled, progress.position) == (10, 2, 15)
    progress.handle(10)
    assert progress.committable == 14
    progress.handle(14)
    progress.handle(14)
    assert (progress.committable, progress.unhandled) == (15, 0)


def test_messages_of_others_are_passed_only_behind_handled_ones() -> None:
    progress = HandledOffsets(0)
    progress.deliver(3)
    progress.pass_to(20)

    assert progress.committable == 3
    progress.handle(3)
    assert progress.committable == 20
    progress.pass_to(5)
    assert progress.position == 20


@given(st.data())
def test_everything_below_a_commit_is_handled(data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(0, 40), min_size=1)))
    progress = HandledOffsets(0)
    for offset in offsets:
        progress.deliver(offset)
    handled = data.draw(st.lists(st.sampled_from(offsets)))

    for offset in handled:
        before = progress.committable
        progress.handle(offset)
        assert progress.committable >= before

    left = [offset for offset in offsets if offset not in handled]
    assert progress.committable == (left[0] if left else offsets[-1] + 1)
    assert progress.unhandled == len(left)
