"""What a replica knows of degraded ranges when it hears of more, when its log is cut, and when another master tells."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from dittomq.offsets import PhysicalOffset
from dittomq.replication.degraded import MAX_RANGES, Degraded, DegradedRange, clipped, told, total_bytes, united


def ranges(*spans: tuple[int, int | None]) -> Degraded:
    return tuple(DegradedRange(at(start), None if end is None else at(end), since_ms=start) for start, end in spans)


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def spans(known: Degraded) -> list[tuple[int, int | None]]:
    return [(each.start, each.end) for each in known]


def test_of_its_own_term_a_master_alone_knows() -> None:
    held = ranges((100, 200), (450, 480), (500, None))

    assert spans(told(held, ranges((100, 200), (460, 470)), at(400))) == [(100, 200), (460, 470)]


def test_what_earlier_terms_left_is_kept_though_the_new_master_does_not_know_it() -> None:
    assert spans(told(ranges((100, 200), (350, 450)), ranges((500, None)), at(400))) == [(100, 200), (350, 400), (500, None)]


def test_a_range_that_went_on_when_its_master_was_last_heard_ends_where_the_next_ones_term_begins() -> None:
    assert spans(told(ranges((300, None)), ranges((450, None)), at(400))) == [(300, 400), (450, None)]


def test_a_range_that_the_master_tells_of_ends_where_it_says() -> None:
    assert spans(told(ranges((300, None)), ranges((300, 420)), at(400))) == [(300, 420)]
    assert spans(told(ranges((300, 380)), ranges((300, None)), at(400))) == [(300, None)]


def test_what_is_cut_is_degraded_no_more() -> None:
    assert spans(clipped(ranges((100, 200), (300, 500), (600, None)), at(400))) == [(100, 200), (300, 400)]
    assert spans(clipped(ranges((100, 200), (300, None)), at(400))) == [(100, 200), (300, None)]
    assert clipped(ranges((300, 500)), at(400))[0].messages is None


def test_ranges_that_overlap_are_one_and_neighbours_are_two() -> None:
    assert spans(united(ranges((100, 200), (300, 400)), ranges((150, 250), (400, 500)))) == [(100, 250), (300, 400), (400, 500)]
    assert spans(united(ranges((100, None)), ranges((150, 250)))) == [(100, None)]


def test_messages_of_ranges_that_became_one_are_unknown() -> None:
    [both] = united([DegradedRange(at(0), at(10), 1, 3)], [DegradedRange(at(5), at(20), 2, 4)])

    assert both == DegradedRange(at(0), at(20), 1, None)
    assert united([DegradedRange(at(0), at(10), 1, 3)], [DegradedRange(at(5), at(10), 2, 4)]) == (DegradedRange(at(0), at(10), 1, 3),)


def test_of_very_many_the_two_oldest_become_one() -> None:
    many = ranges(*((10 * number, 10 * number + 5) for number in range(MAX_RANGES + 3)), (99_999, None))

    known = united((), many)

    assert len(known) == MAX_RANGES + 1
    assert spans(known)[0] == (0, 35)
    assert spans(known)[1:] == spans(many)[4:]


def test_bytes_are_counted_up_to_what_is_confirmed() -> None:
    assert total_bytes(ranges((100, 200), (300, None)), at(350)) == 150
    assert total_bytes(ranges((300, None)), at(250)) == 0


borders = st.lists(st.integers(0, 60), unique=True, max_size=8).map(sorted)


def some(cuts: list[int]) -> Degraded:
    """Ranges between every other border; the last one goes on when their number is odd."""
    return ranges(*((cuts[number], cuts[number + 1] if number + 1 < len(cuts) else None) for number in range(0, len(cuts), 2)))


def degraded_bytes(known: Degraded) -> set[int]:
    return {byte for each in known for byte in range(each.start, 100 if each.end is None else each.end)}


@given(borders, borders)
def test_no_byte_is_forgotten_or_added_but_where_both_name_one_beginning(ours: list[int], theirs: list[int]) -> None:
    theirs_said = {each.start for each in some(theirs)}
    kept = tuple(each for each in some(ours) if each.start not in theirs_said)

    known = united(some(ours), some(theirs))

    assert degraded_bytes(known) == degraded_bytes(kept) | degraded_bytes(some(theirs))
    assert all(low.end is not None and low.end <= high.start for low, high in pairwise(known))
