"""What is remembered of producers follows from the log alone, is bounded by number and age, and never says "not in the log" of what is."""

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.queues import producer_state
from dittomq.commitlog.queues.producer_state import MAX_AGE_DAYS, MAX_PRODUCERS, Producers, Sequenced, from_bytes
from dittomq.commitlog.records.batch_index import DAY_MS
from dittomq.errors import OutOfOrderSequence, UnknownProducerId

RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Frame:
    """Sequences [first, first + count) of a producer, one record behind the other, stored on one day."""

    producer_id: str
    first: int
    count: int
    day: int


def note(table: Producers, producer_id: str, first: int, position: int, *, day: int = 0) -> None:
    table.record(producer_id, first, (position,), day * DAY_MS)


def table_of_many(count: int) -> Producers:
    table = Producers()
    for number in range(count):
        note(table, f"p{number}", 0, number * RECORD_BYTES)
    return table


def test_resent_first_sequence_of_a_forgotten_producer_is_unknown() -> None:
    """A new one is not."""
    table = table_of_many(MAX_PRODUCERS + 1)

    assert isinstance(table.known("p0", 0, 1, sent_since=0), UnknownProducerId)
    assert table.known("new", 0, 1) == []


def test_what_was_first_sent_behind_all_that_is_forgotten_is_known_not_to_be_stored() -> None:
    table = table_of_many(MAX_PRODUCERS + 1)

    assert table.known("new", 0, 1, sent_since=RECORD_BYTES) == []
    assert table.find("new", 0, sent_since=RECORD_BYTES) is None
    assert isinstance(table.known("new", 1, 1, sent_since=RECORD_BYTES), OutOfOrderSequence)
    for sequence in (0, 1):
        with pytest.raises(UnknownProducerId):
            table.find("new", sequence)
    assert isinstance(table.known("new", 1, 1), UnknownProducerId)


@pytest.mark.parametrize("kept", [1, 3, 4])
def test_batch_sent_again_continues_behind_the_part_that_truncation_left(kept: int) -> None:
    table, count = Producers(), 5
    first = [number * RECORD_BYTES for number in range(2 + count)]
    table.record("p", 0, first[:2], 0)
    table.record("p", 2, first[2:], 0)
    table.truncate(first[2 + kept])

    known = table.known("p", 2, count)
    assert known == first[2 : 2 + kept]
    again = [10_000 + number * RECORD_BYTES for number in range(count - kept)]
    table.record("p", 2 + len(known), again, 0)

    places = [*first[: 2 + kept], *again]
    assert [table.find("p", sequence) for sequence in range(2 + count)] == places
    assert table.known("p", 2, count) == places[2:]
    restored, _ = from_bytes(table.to_bytes(20_000))
    assert restored.known("p", 0, 100) == places
    assert restored.known("p", 2 + count, 1) == []


def test_nothing_is_expired_before_something_was_forgotten() -> None:
    table = table_of_many(MAX_PRODUCERS)

    assert table.known("new", 0, 1, sent_since=0) == []
    assert isinstance(table.known("new", 1, 1, sent_since=0), OutOfOrderSequence)
    assert table.find("new", 0) is None


def test_producer_is_forgotten_7_days_after_its_last_record() -> None:
    """With the first record of a day that is more than 7 days later."""
    table = Producers()
    note(table, "idle", 0, 0, day=10)
    note(table, "busy", 0, RECORD_BYTES, day=11)
    note(table, "other", 0, 2 * RECORD_BYTES, day=10 + MAX_AGE_DAYS)

    assert table.known("idle", 0, 1) == [0]
    note(table, "other", 1, 3 * RECORD_BYTES, day=11 + MAX_AGE_DAYS)

    assert isinstance(table.known("idle", 0, 1, sent_since=0), UnknownProducerId)
    assert isinstance(table.known("idle", 1, 1), UnknownProducerId)
    with pytest.raises(UnknownProducerId):
        table.find("idle", 0)
    assert table.known("busy", 0, 1) == [RECORD_BYTES]


def test_time_alone_makes_nobody_forgotten_and_who_comes_back_first_is_remembered() -> None:
    table = Producers()
    note(table, "p", 0, 0, day=1)

    note(table, "p", 1, RECORD_BYTES, day=400)

    assert table.known("p", 0, 2) == [0, RECORD_BYTES]


def test_sequences_dropped_with_their_segments_are_unknown_from_the_first() -> None:
    table = Producers()
    note(table, "gone", 0, 0)
    note(table, "p", 0, RECORD_BYTES)
    note(table, "p", 1, 2 * RECORD_BYTES)

    table.drop_before(2 * RECORD_BYTES)

    assert isinstance(table.known("gone", 0, 1, sent_since=0), UnknownProducerId)
    assert isinstance(table.known("p", 0, 1, sent_since=0), UnknownProducerId)
    assert table.known("p", 1, 2) == [2 * RECORD_BYTES]


def test_repaired_record_is_not_the_newest_of_a_forgotten_producer() -> None:
    table = Producers()
    note(table, "p", 1, RECORD_BYTES)  # sequence 0, at 0, is missing
    for number in range(MAX_PRODUCERS):
        note(table, f"later{number}", 0, (2 + number) * RECORD_BYTES)

    table.repair([Sequenced("p", 0, 0, 0)])

    assert isinstance(table.known("p", 1, 1), UnknownProducerId)
    with pytest.raises(UnknownProducerId):
        table.find("p", 1)


def test_least_recently_used_producer_goes_first_after_a_repair() -> None:
    """And after a truncation."""
    table = table_of_many(MAX_PRODUCERS)
    end = MAX_PRODUCERS * RECORD_BYTES
    note(table, "p0", 1, end)

    table.truncate(end)
    note(table, "new", 0, end)

    assert isinstance(table.known("p0", 0, 1, sent_since=0), UnknownProducerId)
    assert table.known("p1", 0, 1) == [RECORD_BYTES]


def test_a_snapshot_of_a_version_that_knew_no_age_is_read_from_the_log_again() -> None:
    table = table_of_many(2)
    old = table.to_bytes(200).replace(b', "days": [[0, 0]]', b"")
    head = len(old) - 4 - 2 * 8
    old = head.to_bytes(4, "big") + old[4:]

    again, end = from_bytes(old)

    assert (again.known("p0", 0, 1), end) == ([], 0)


@contextmanager
def few() -> Iterator[None]:
    """A table holds three producers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_state, "MAX_PRODUCERS", 3)
        yield


@st.composite
def logs(draw: st.DrawFn) -> list[Frame]:
    """What a master of few producers stores of those that come and go; it refuses what does not follow."""
    with few():
        return _drawn(draw)


def _drawn(draw: st.DrawFn) -> list[Frame]:
    table, day, position, stored = Producers(), 0, 0, []
    following: dict[str, int] = {}
    for _ in range(draw(st.integers(1, 25))):
        producer_id = draw(st.sampled_from("abcdef"))
        day += draw(st.sampled_from((0, 0, 0, 1, 3, MAX_AGE_DAYS, 30)))
        count = draw(st.integers(1, 3))
        first = following.get(producer_id, 0)
        if table.known(producer_id, first, count) != []:
            producer_id += str(day)  # a client goes on under another one
            first = following.get(producer_id, 0)
        frame = Frame(producer_id, first, count, day)
        if table.known(frame.producer_id, first, count) != []:
            continue
        take(table, frame, position)
        following[producer_id] = first + count
        stored.append(frame)
        position += count * RECORD_BYTES
    return stored


def take(table: Producers, frame: Frame, position: int) -> None:
    table.record(
        frame.producer_id, frame.first, array("q", range(position, position + frame.count * RECORD_BYTES, RECORD_BYTES)), frame.day * DAY_MS
    )


def rebuilt(log: list[Frame], *, singly: bool = False) -> Producers:
    """As a master takes it in, frame by frame, or as another replica may, record by record."""
    table, position = Producers(), 0
    for frame in log:
        for part in [Frame(frame.producer_id, frame.first + at, 1, frame.day) for at in range(frame.count)] if singly else [frame]:
            take(table, part, position)
            position += part.count * RECORD_BYTES
    return table


def end_of(log: list[Frame]) -> int:
    return sum(frame.count for frame in log) * RECORD_BYTES


def told(table: Producers, frame: Frame, position: int) -> object:
    """What a table says of the frame when it is sent again."""
    answer = table.known(frame.producer_id, frame.first, frame.count, sent_since=position)
    return answer if isinstance(answer, list) else type(answer)


@given(logs(), st.data())
def test_every_replica_remembers_the_same_however_it_took_the_log_in(log: list[Frame], data: st.DataObject) -> None:
    with few():
        at = data.draw(st.integers(0, len(log)))
        master = rebuilt(log)
        snapshot, end = from_bytes(rebuilt(log[:at]).to_bytes(end_of(log[:at])))
        for frame in log[at:]:
            take(snapshot, frame, end)
            end += frame.count * RECORD_BYTES

        assert rebuilt(log, singly=True).to_bytes(end) == master.to_bytes(end)
        assert snapshot.to_bytes(end) == master.to_bytes(end)


@pytest.mark.tier("test")
@given(logs(), st.data())
def test_what_is_in_the_log_is_told_with_its_place_or_expired_never_absent(log: list[Frame], data: st.DataObject) -> None:
    with few():
        at = data.draw(st.integers(0, len(log)))
        cut = rebuilt(log)
        cut.truncate(end_of(log[:at]))
        dropped = rebuilt(log)
        dropped.drop_before(end_of(log[:at]))

        position = 0
        for number, frame in enumerate(log):
            places = list(range(position, position + frame.count * RECORD_BYTES, RECORD_BYTES))
            assert told(rebuilt(log), frame, position) in (places, UnknownProducerId)
            assert told(dropped, frame, position) in (places, UnknownProducerId)
            if number < at:
                assert told(cut, frame, position) in (places, UnknownProducerId)
            else:
                assert told(cut, frame, position) in ([], OutOfOrderSequence, UnknownProducerId)
            position += frame.count * RECORD_BYTES
