import random

import pytest

from dittomq.commitlog.queues.producer_state import MAX_PRODUCERS, MAX_SEQUENCES
from dittomq.commitlog.records.bulk import LEAST_MESSAGES
from dittomq.commitlog.records.format import MARK_BYTES
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.errors import (
    CorruptRecord,
    DiskFull,
    InvalidField,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageFailure,
    UnknownProducerId,
)
from dittomq.message import MAX_BODY_BYTES
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.places import AppendResult
from tests.support.stores import SMALL, Machine, chain_digest, draft, frame, open_epoch, places, queues_of, whole_log


@pytest.fixture
def store(machine: Machine) -> Store:
    return machine.lead()


def test_a_group_lies_in_the_log_as_its_pieces_say(store: Store) -> None:
    group = store.append([frame(b"one", b"two"), frame(b"three", topic="events")], 5_000)

    assert (group.start, group.end, group.store_ms) == (0, store.end, 5_000)
    assert b"".join(data for _, data in group.pieces) == whole_log(store)
    assert [place.queue_offset for place in places(group.placed[0])] == [0, 1]
    assert queues_of(whole_log(store), SMALL.segment_bytes) == {
        ("orders", 0): [(at, place.physical_offset) for at, place in enumerate(places(group.placed[0]))],
        ("events", 0): [(0, places(group.placed[1])[0].physical_offset)],
    }


def test_a_group_knows_how_many_messages_it_wrote_without_refused_and_repeated_ones(store: Store) -> None:
    first = store.append([frame(b"one", b"two", producer="p", first=0)], 1)
    again = store.append([frame(b"one", b"two", b"three", producer="p", first=0), frame(b"x" * (MAX_BODY_BYTES + 1)), frame(b"four")], 2)

    assert (first.messages, again.messages) == (2, 2)


def test_a_record_that_does_not_fit_goes_into_the_next_segment_behind_a_mark(store: Store) -> None:
    size = SMALL.segment_bytes
    group = store.append([frame(b"x" * 15_000, b"y" * 2_000)], 1)

    assert [start for start, _ in group.pieces] == [0, size]
    assert len(group.pieces[0][1]) == size, "the piece reaches to the segment's end, zeros included"
    assert places(group.placed[0])[1].physical_offset == size
    assert store.read_records(0, group.end, 1 << 20) == group.pieces[0][1]


def test_the_separator_that_properties_lack_counts_where_a_record_fills_a_segment(store: Store) -> None:
    bare = draft()._replace(properties=b"A\x01b", body=b"y" * (SMALL.segment_bytes - MARK_BYTES - 91 - len("orders") - 3 - 20))

    answers = store.append([AppendBatch([bare]), AppendBatch([bare._replace(body=bare.body[:-1])])], 1).placed

    assert isinstance(answers[0], MessageTooLarge)
    assert [one.sizes for one in places(answers[1])] == [[SMALL.segment_bytes - MARK_BYTES]]


def test_a_record_fills_a_segment_up_to_the_mark(store: Store) -> None:
    overhead = places(store.append([frame(b"")], 1).placed[0])[0].size
    body = SMALL.segment_bytes - MARK_BYTES - overhead
    store.append([frame(b"x" * 15_000)], 1)

    placed = places(store.append([frame(b"y" * body)], 1).placed[0])[0]

    assert placed == AppendResult("orders", 0, QueueOffset(2), PhysicalOffset(SMALL.segment_bytes), [body + overhead], 1)
    assert isinstance(store.append([frame(b"y" * (body + 1))], 1).placed[0], MessageTooLarge)


@pytest.mark.parametrize("producer", ["", "p"])
def test_a_large_batch_is_stored_as_its_messages_one_by_one(producer: str) -> None:
    chance = random.Random(11)
    bodies = [chance.randbytes(chance.randrange(600)) for _ in range(200)]
    identities = [(producer, at) if producer else None for at in range(len(bodies))]
    drafts = [
        draft(chance.choice(("orders", "events")), chance.randrange(3), body, chance.choice(("", "a")), identity=identity)
        for body, identity in zip(bodies, identities, strict=True)
    ]
    drafts = [each._replace(properties=each.properties + b"KEYS\x01k%d\x02" % chance.randrange(9)) for each in drafts]
    large, small = Machine(random.Random(1)).open(), Machine(random.Random(1)).open()
    for store in (large, small):
        open_epoch(store)
        store.append([AppendBatch([draft("orders"), draft("events")])], 1_000)  # the topics are known

    answers = large.append([AppendBatch(drafts[at : at + 50], producer, at if producer else -1) for at in range(0, 200, 50)], 1_000).placed
    singles = [AppendBatch([each], producer, at if producer else -1) for at, each in enumerate(drafts)]

    assert [place for answer in answers for place in places(answer)] == [
        place for answer in small.append(singles, 1_000).placed for place in places(answer)
    ]
    assert whole_log(large) == whole_log(small)
    for store in (large, small):
        store.dispatch(store.end)
    assert large.queues() == small.queues()
    for topic, queue in large.queues():
        assert large.read_queue(topic, queue, 0, 300, 1 << 20) == small.read_queue(topic, queue, 0, 300, 1 << 20)
    assert [large.find_sequence("p", at) for at in range(200)] == [small.find_sequence("p", at) for at in range(200)]


def test_a_large_batch_with_one_bad_message_leaves_nothing(store: Store) -> None:
    good = [draft(body=b"%d" % at) for at in range(50)]
    store.append([AppendBatch(good)], 1)
    end = store.end

    answer = store.append([AppendBatch([*good, draft(body=b"x" * (MAX_BODY_BYTES + 1))])], 1).placed[0]

    assert isinstance(answer, MessageTooLarge)
    assert store.end == end
    assert places(store.append([AppendBatch(good)], 1).placed[0])[0].queue_offset == 50


def test_a_large_batch_with_a_message_that_no_segment_can_hold_is_refused(store: Store) -> None:
    store.append([frame(b"topics are learned from a first message")], 1)
    end = store.end

    (answer,) = store.append([frame(*[b"small"] * LEAST_MESSAGES, b"y" * SMALL.segment_bytes)], 1).placed

    assert isinstance(answer, MessageTooLarge)
    assert store.end == end


def test_store_time_never_goes_back_not_even_over_a_restart(machine: Machine, store: Store) -> None:
    assert store.append([frame(b"a")], 5_000).store_ms == 5_000
    assert store.append([frame(b"b")], 3_000).store_ms == 5_000
    store.sync()
    machine.kill()

    again = machine.lead()

    assert again.append([frame(b"c")], 4_000).store_ms == 5_000


def test_a_refused_batch_leaves_nothing_and_its_neighbours_stay(store: Store) -> None:
    bad = AppendBatch([draft(body=b"first"), draft(topic="a/b")])
    too_large = AppendBatch([draft(body=b"z" * (MAX_BODY_BYTES + 1))])
    too_many_properties = AppendBatch([draft()._replace(properties=b"a\x01" + b"b" * 32_760 + b"\x02")])

    group = store.append([frame(b"one"), bad, too_large, too_many_properties, frame(b"two")], 1)

    assert isinstance(group.placed[1], InvalidField)
    assert isinstance(group.placed[2], MessageTooLarge)
    assert isinstance(group.placed[3], MessageTooLarge)
    assert [offset for offset, _ in queues_of(whole_log(store), SMALL.segment_bytes)["orders", 0]] == [0, 1]


def test_a_retried_batch_gets_its_first_places_back(store: Store) -> None:
    first = places(store.append([frame(b"a", b"b", producer="p", first=0)], 1).placed[0])
    end = store.end

    again = places(store.append([frame(b"a", b"b", producer="p", first=0)], 1).placed[0])

    assert store.end == end
    assert [place._replace(duplicate=False) for place in again] == first
    assert all(place.duplicate for place in again)


def test_a_retry_that_overlaps_appends_only_what_is_new(store: Store) -> None:
    store.append([frame(b"a", b"b", producer="p", first=0)], 1)

    mixed = places(store.append([frame(b"b", b"c", producer="p", first=1)], 1).placed[0])

    assert [place.duplicate for place in mixed] == [True, False]
    assert [place.queue_offset for place in mixed] == [1, 2]


def test_a_batch_and_its_retry_in_one_group_store_it_once(store: Store) -> None:
    one = frame(b"a", b"b", producer="p", first=0)

    group = store.append([one, one, frame(b"c", producer="p", first=2)], 1)

    answers = [places(answer) for answer in group.placed]
    assert [place.physical_offset for place in answers[0]] == [place.physical_offset for place in answers[1]]
    assert [place.duplicate for answer in answers for place in answer] == [False, False, True, True, False]
    assert group.placed[2]
    assert answers[2][0].queue_offset == 2


def test_a_gap_in_the_sequence_names_what_is_expected(store: Store) -> None:
    store.append([frame(b"a", producer="p", first=0)], 1)

    refused = store.append([frame(b"c", producer="p", first=2)], 1).placed[0]

    assert isinstance(refused, OutOfOrderSequence)
    assert (refused.expected, refused.got) == (1, 2)


def test_unknown_producer_in_mid_sequence_is_accepted_if_none_was_forgotten(store: Store) -> None:
    """It skips its first sequences."""
    refused = store.append([frame(b"c", producer="p", first=9)], 1).placed[0]

    assert isinstance(refused, OutOfOrderSequence)
    assert (refused.expected, refused.got) == (0, 9)
    assert store.find_sequence("p", 9) is None


def test_only_the_last_sequences_of_a_producer_are_remembered(store: Store) -> None:
    count = MAX_SEQUENCES + 500
    for first in range(0, count, 500):
        store.append([AppendBatch([draft(body=b"", identity=("p", at)) for at in range(first, min(first + 500, count))], "p", first)], 1)

    oldest = count - MAX_SEQUENCES
    assert store.find_sequence("p", oldest) is not None
    with pytest.raises(UnknownProducerId):
        store.find_sequence("p", oldest - 1)
    assert isinstance(store.append([frame(b"", producer="p", first=oldest - 1)], 1).placed[0], UnknownProducerId)


def test_the_longest_unused_producer_is_forgotten_first(store: Store) -> None:
    for number in range(MAX_PRODUCERS):
        store.append([frame(b"", producer=f"p{number}", first=0)], 1)
    store.append([frame(b"", producer="p0", first=1), frame(b"", producer="new", first=0)], 1)

    assert store.find_sequence("p0", 1) is not None
    with pytest.raises(UnknownProducerId):
        store.find_sequence("p1", 0)
    assert isinstance(store.append([frame(b"", producer="p1", first=1)], 1).placed[0], UnknownProducerId)


def test_first_message_of_a_forgotten_producer_needs_its_first_sent_time(store: Store) -> None:
    """It is stored again only for a producer that does not say since when it was sent."""
    first = frame(b"first", producer="p", first=0)
    store.append([first], 1)
    for number in range(MAX_PRODUCERS):
        store.append([frame(b"", producer=f"p{number}", first=0)], 1)
    pushed_out = places(store.append([frame(b"", producer="last", first=0)], 1).placed[0])[0].physical_offset

    again, new, unsaid = store.append(
        [first._replace(sent_since=0), frame(b"new", producer="q", first=0)._replace(sent_since=pushed_out), first], 1
    ).placed

    assert isinstance(again, UnknownProducerId)
    assert pushed_out < again.log_end <= store.end
    assert not places(new)[0].duplicate
    assert not places(unsaid)[0].duplicate


@pytest.mark.parametrize("byte", [0, 3, 4, 90])
def test_a_duplicate_whose_record_is_damaged_is_refused(machine: Machine, store: Store, byte: int) -> None:
    place = places(store.append([frame(b"precious", producer="p", first=0)], 1).placed[0])[0]
    flip(machine, "commitlog/00000000000000000000", place.physical_offset + byte)

    assert isinstance(store.append([frame(b"precious", producer="p", first=0)], 1).placed[0], CorruptRecord)


def test_a_full_disk_refuses_before_anything_is_written(machine: Machine, store: Store) -> None:
    store.append([frame(b"a")], 1)
    end = store.end
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 100

    with pytest.raises(DiskFull):
        store.append([frame(b"b" * 200)], 1)
    machine.disk.capacity_bytes += 100_000

    assert store.append([frame(b"b" * 200)], 1).start == end


def test_after_a_failed_sync_nothing_is_written_or_synced_any_more(machine: Machine, store: Store) -> None:
    store.append([frame(b"a")], 1)
    machine.faults.failing_syncs = 1

    with pytest.raises(StorageFailure):
        store.sync()
    for work in (store.sync, lambda: store.append([frame(b"b")], 1), store.checkpoint, lambda: store.persist_recovery_point(0, 0)):
        with pytest.raises(StorageFailure):
            work()

    store.clear_boot_stamp()
    assert store.flushed == 0
    assert store.read(0, 10), "reads go on"


@pytest.mark.parametrize("is_synced_again", [False, True])
def test_what_is_appended_while_a_sync_runs_is_durable_from_the_next_sync_on(is_synced_again: bool) -> None:
    machine = Machine(random.Random(1))
    store = machine.lead()
    store.append([frame(b"before")], 1)
    before = store.end

    def append_meanwhile(path: str, _: float) -> None:
        if path.startswith("commitlog/") and store.end == before:
            store.append([frame(b"meanwhile")], 2)

    machine.faults.synced = append_meanwhile
    assert store.sync() == store.flushed == before < store.end
    if is_synced_again:
        assert store.sync() == store.flushed == store.end
    machine.lose_power(all_unsynced=True)

    again = machine.open()
    again.dispatch(again.end)
    bodies = [message.body for message in again.read_queue("orders", 0, 0, 10, 10_000).messages]
    assert bodies == ([b"before", b"meanwhile"] if is_synced_again else [b"before"])


def test_the_queues_grow_only_up_to_what_is_dispatched(store: Store) -> None:
    group = store.append([frame(*[b"m"] * 60)], 1)
    ends = [place.physical_offset + place.size for place in places(group.placed[0])]

    assert store.queue_range("orders", 0) == (0, 0)
    assert store.dispatch(ends[29] + 5) == ends[29]
    assert store.queue_range("orders", 0) == (0, 30)
    with pytest.raises(OffsetOutOfRange):
        store.read_queue("orders", 0, 31, 10, 1_000)
    assert store.dispatch(store.end) == store.end
    assert store.queue_range("orders", 0) == (0, 60)


def test_a_slow_dispatch_reads_from_the_log_what_memory_no_longer_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.commitlog.queues.dispatch.MAX_WAITING_UNITS", 10)
    for _ in range(9):
        store.append([frame(*[b"m"] * 7)], 1)
        store.dispatch(store.end // 2)

    store.dispatch(store.end)

    assert [message.queue_offset for message in store.read_queue("orders", 0, 0, 100, 100_000).messages] == list(range(63))


def test_a_read_gives_at_least_one_message_and_then_keeps_its_limits(store: Store) -> None:
    store.append([frame(b"x" * 1_000, b"y" * 1_000, b"z" * 1_000)], 1)
    store.dispatch(store.end)

    assert len(store.read_queue("orders", 0, 0, 10, 1).messages) == 1
    assert len(store.read_queue("orders", 0, 0, 10, 2_500).messages) == 2
    assert len(store.read_queue("orders", 0, 0, 1, 100_000).messages) == 1
    assert store.read_queue("orders", 0, 0, 10, 2_500).next_offset == 2
    assert store.read_queue("orders", 0, 3, 10, 1_000).messages == []


def test_a_read_by_tag_skips_the_others_and_moves_on_over_them(store: Store) -> None:
    store.append([AppendBatch([draft(tag="red" if at % 10 == 9 else "blue", body=b"%d" % at) for at in range(100)])], 1)
    store.dispatch(store.end)

    found = store.read_queue("orders", 0, 0, 100, 100_000, frozenset({"red"}))
    none = store.read_queue("orders", 0, 0, 100, 100_000, frozenset({"green"}))

    assert [message.body for message in found.messages] == [b"%d" % at for at in range(9, 100, 10)]
    assert (none.messages, none.next_offset) == ([], 100)


def test_tags_of_one_hash_are_told_apart(store: Store) -> None:
    store.append([AppendBatch([draft(tag="Aa"), draft(tag="BB")])], 1)
    store.dispatch(store.end)

    assert [message.tag for message in store.read_queue("orders", 0, 0, 10, 10_000, frozenset({"BB"})).messages] == ["BB"]


def test_a_damaged_record_is_never_handed_out(machine: Machine, store: Store) -> None:
    placed = places(store.append([frame(b"one", b"two", b"three")], 1).placed[0])
    store.dispatch(store.end)
    flip(machine, "commitlog/00000000000000000000", placed[1].physical_offset + 89)

    before = store.read_queue("orders", 0, 0, 10, 10_000)

    assert [message.body for message in before.messages] == [b"one"]
    with pytest.raises(CorruptRecord) as damage:
        store.read_queue("orders", 0, before.next_offset, 10, 10_000)
    assert damage.value.position == placed[1].physical_offset
    assert [message.body for message in store.read_queue("orders", 0, 2, 10, 10_000).messages] == [b"three"]
    with pytest.raises(CorruptRecord):
        store.read_records(0, store.end, 1 << 20)


def test_ranges_of_records_end_where_a_record_ends(store: Store) -> None:
    placed = places(store.append([frame(b"one", b"two", b"x" * 3_000)], 1).placed[0])
    starts = [place.physical_offset for place in placed]

    assert len(store.read_records(0, starts[2] - 1, 1 << 20)) == starts[1]
    assert len(store.read_records(0, store.end, starts[1] + 1)) == starts[1]
    assert len(store.read_records(starts[2], store.end, 10)) == placed[2].size
    assert store.read_records(starts[2], store.end - 1, 10) == b""


def test_digests_of_equal_logs_are_equal_and_salt_changes_them(machine: Machine, store: Store) -> None:
    store.append([frame(b"x" * 15_000, b"y" * 2_000)], 1)
    (start, end), size = store.segment_of(0), SMALL.segment_bytes

    assert (start, end) == (0, size)
    assert store.leaf_digests(0, store.end) == store.leaf_digests(0, size) + store.leaf_digests(size, store.end)
    assert chain_digest(store, 0, size) != chain_digest(store, 0, size, salt=1)
    with pytest.raises(OffsetOutOfRange):
        chain_digest(store, 0, store.end + 1)


def flip(machine: Machine, path: str, position: int) -> None:
    inode = machine.disk.names.files[path]
    inode.write(memoryview(bytes([inode.read(1, position)[0] ^ 0xFF])), position, machine.chance)
