"""How far two copies are verified: nothing counts that was not compared, and all that both hold is compared in the end."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.offsets import PhysicalOffset
from dittomq.replication.consistency_check import NEWEST_RANGES, Answer, ConsistencyCheck, Extent, handshake_ranges
from dittomq.replication.events import RangeDigest

SEGMENT = 100
SEEDS = st.integers(0, 2**32)


def extent(begin: int, end: int, confirmed: int, verified: int) -> Extent:
    return Extent(PhysicalOffset(begin), PhysicalOffset(end), PhysicalOffset(confirmed), PhysicalOffset(verified), SEGMENT)


def digest(start: int, end: int, log: bytes) -> RangeDigest:
    return RangeDigest(PhysicalOffset(start), PhysicalOffset(end), log[start:end])


@given(SEEDS)
def test_handshake_digests_the_newest_and_all_unconfirmed_bytes(seed: int) -> None:
    """All that is not known to be confirmed."""
    chance = random.Random(seed)
    begin = SEGMENT * chance.randrange(3)
    end = begin + chance.randrange(1, 9 * SEGMENT)
    confirmed, verified, step = chance.randint(0, end + 50), chance.randint(0, end), chance.randint(1, 4 * SEGMENT)

    ranges = handshake_ranges(extent(begin, end, confirmed, verified), step)

    assert [start for start, _ in ranges[:-1]] == [end for _, end in ranges[1:]], "without gaps, newest first"
    assert ranges[0][1] == end
    assert all(begin <= start < stop and start // SEGMENT == (stop - 1) // SEGMENT for start, stop in ranges)
    compared_from = ranges[-1][0]
    assert compared_from <= verified or compared_from <= min(confirmed, end - step) or compared_from == begin
    assert sum(stop - start for start, stop in ranges) <= max(step, end - confirmed)


@given(SEEDS)
def test_what_was_damaged_counts_as_equal_again_only_when_it_was_compared_since(seed: int) -> None:
    chance = random.Random(seed)
    end = chance.randrange(1, 8 * SEGMENT)
    check = ConsistencyCheck(begin=at(0), verified=at(end), segment_bytes=SEGMENT, step_bytes=chance.randint(1, 2 * SEGMENT))
    doubted, compared = end, set[int]()

    def maybe_doubt() -> None:
        nonlocal doubted
        if chance.random() < 0.1:
            at_byte = chance.randrange(end)
            doubted = min(doubted, at_byte)
            compared.difference_update(range(at_byte, end))
            check.reverify_from(at(at_byte))

    for _ in range(60):
        ours = digest(*check.begin_step(at(end)), bytes(end))
        maybe_doubt()
        check.digested(ours, at(0))
        maybe_doubt()
        if check.answered(ours) is Answer.EQUAL:
            compared.update(range(ours.start, ours.end))
        maybe_doubt()
        assert compared.issuperset(range(doubted, check.verified))


def test_handshake_of_an_unknown_log_digests_a_limited_number_of_segments() -> None:
    end = 200 * SEGMENT

    ranges = handshake_ranges(extent(0, end, confirmed=0, verified=0), step_bytes=1)

    assert ranges == [(end - (number + 1) * SEGMENT, end - number * SEGMENT) for number in range(NEWEST_RANGES)]


def test_a_log_that_holds_nothing_has_nothing_to_digest() -> None:
    assert handshake_ranges(extent(0, 0, 0, 0), 64) == []


@given(SEEDS)
def test_nothing_uncompared_is_equal_and_every_difference_is_found(seed: int) -> None:
    """Copies of a log that grows, of which parts are damaged now and then, and which may differ in one byte somewhere."""
    chance = random.Random(seed)
    begin = SEGMENT * chance.randrange(3)
    log = chance.randbytes(begin + chance.randrange(1, 8 * SEGMENT))
    differs = chance.choice((None, chance.randrange(begin, len(log))))
    other = log if differs is None else log[:differs] + bytes([log[differs] ^ 1]) + log[differs + 1 :]
    verified = begin if differs is None else chance.randint(begin, differs)
    check = ConsistencyCheck(begin=at(begin), verified=at(verified), segment_bytes=SEGMENT, step_bytes=chance.randint(1, 2 * SEGMENT))
    flushed, found = begin, False
    for _ in range(3_000):
        flushed = min(len(log), flushed + chance.randrange(20))
        damaged = chance.randrange(len(log)) if flushed < len(log) else -1  # in the end all is whole
        assert not check.lets_pass()
        start, end = check.begin_step(at(flushed))
        assert begin <= start <= end <= flushed
        assert start == end or start // SEGMENT == (end - 1) // SEGMENT
        here = None if start == end or start <= damaged < end else digest(start, end, log)
        check.digested(here, at(begin))
        if here is not None:
            whole = chance.random() < 0.9 and not start <= damaged - 7 < end
            found = check.answered(digest(start, end, other if whole else b"")) is Answer.DIFFERENT
        assert check.verified <= (len(log) if differs is None else differs)
        if found or (differs is None and check.verified == len(log)):
            return
    pytest.fail(f"proven up to {check.verified} of {len(log)}, and they differ at {differs}")


def test_an_answer_to_another_question_proves_nothing_and_the_right_one_counts_once() -> None:
    check = ConsistencyCheck(begin=at(0), verified=at(0), segment_bytes=SEGMENT, step_bytes=50)
    log = bytes(SEGMENT)
    check.begin_step(at(80))
    check.digested(digest(0, 50, log), at(0))

    assert check.answered(digest(0, 40, log)) is Answer.NOTHING
    assert check.verified == 0
    assert check.answered(digest(0, 50, log)) is Answer.EQUAL
    assert check.answered(digest(0, 50, log)) is Answer.NOTHING


def test_slave_is_asked_again_only_after_an_answer_or_sixty_heartbeats() -> None:
    check = ConsistencyCheck(begin=at(0), verified=at(0), segment_bytes=SEGMENT, step_bytes=50)
    log = bytes(SEGMENT)
    check.begin_step(at(80))
    assert check.lets_pass(), "we have not read it ourselves"
    check.digested(digest(0, 50, log), at(0))
    assert [check.lets_pass() for _ in range(60)] == [True] * 59 + [False]

    check.begin_step(at(80))
    check.digested(digest(30, 80, log), at(0))
    assert check.lets_pass()
    assert check.answered(digest(30, 80, b"")) is Answer.NOTHING, "it is not whole there"
    assert not check.lets_pass()


def test_what_either_side_drops_is_passed_over_and_all_behind_it_is_compared() -> None:
    check = ConsistencyCheck(begin=at(0), verified=at(0), segment_bytes=SEGMENT, step_bytes=50)
    log = bytes(3 * SEGMENT)
    for start in (0, 50):
        assert check.begin_step(at(300)) == (start, start + 50)
        check.digested(digest(start, start + 50, log), at(0))
        if not start:
            check.answered(digest(start, start + 50, log))
    check.pass_dropped(at(200))
    check.answered(digest(50, 100, b""))
    assert check.verified == 200
    for _ in range(3):
        start, end = check.begin_step(at(300))
        assert start >= 200
        check.digested(digest(start, end, log), at(0))
        check.answered(digest(start, end, log))

    assert check.verified == 300


def test_comparison_goes_on_between_heartbeats_while_the_slave_answers() -> None:
    """Only while more is left than a step."""
    check = ConsistencyCheck(begin=at(0), verified=at(0), segment_bytes=SEGMENT, step_bytes=50)
    log = bytes(SEGMENT)
    assert check.has_more_than_a_step(at(51))
    assert not check.has_more_than_a_step(at(50))

    start, end = check.begin_step(at(80))
    assert not check.has_more_than_a_step(at(80)), "one range is under way at a time"
    check.digested(digest(start, end, log), at(0))
    assert not check.has_more_than_a_step(at(80)), "the slave has not answered"
    check.answered(digest(start, end, log))
    assert check.has_more_than_a_step(at(101))
    assert not check.has_more_than_a_step(at(80))


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)
