"""Records that RocketMQ wrote: what is whole, and what its consume queues keep of them."""

import struct

import pytest

from dittomq.commitlog.records.checksum_policy import FOREVER, ChecksumPolicy, SealedRange
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import CRC_BYTES, mark, sealed_crc
from dittomq.commitlog.records.rocketmq_records import NotRead, scan, whole_end
from dittomq.epoch_history import FOREIGN, EpochEntry, common_end, grows, last_own_end
from dittomq.group_record import ReplicaId
from dittomq.message import Draft
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.properties import tags_code
from dittomq.replication.election_events import Position
from tests.support.foreign_records import HOST, foreign_record
from tests.support.stores import draft

SEGMENT = 1 << 20


def with_properties(properties: str, topic: str = "orders") -> Draft:
    return Draft(topic, 0, 0, 1_000, b"body", properties.encode(), 0)


def entry(number: int, opener: int, incarnation: int, start: int) -> EpochEntry:
    return EpochEntry(Epoch(number), opener, incarnation, PhysicalOffset(start))


def test_a_record_without_a_seal_counts_by_lengths_position_and_body() -> None:
    record = foreign_record(draft(tag="t"), 7, 100)

    [seen] = scan(record, 100, SEGMENT).entries

    assert (seen.start, seen.end, seen.topic, seen.queue_offset) == (100, 100 + len(record), "orders", 7)
    assert seen.tags_code == tags_code("t")
    assert whole_end(record, 101, SEGMENT) == (101, "it says that it lies at 100")
    assert whole_end(record[:-1], 100, SEGMENT) == (100, "")


def test_a_flipped_bit_of_the_body_is_damage() -> None:
    record = bytearray(foreign_record(draft(), 0, 0))
    record[89] ^= 1

    assert whole_end(bytes(record), 0, SEGMENT) == (0, "its checksum does not match the body")


def test_a_record_whose_properties_end_in_zeros_is_torn() -> None:
    record = foreign_record(draft(tag="a tag that never came"), 0, 0)

    torn = record[:-10].ljust(len(record), b"\0")

    assert whole_end(torn, 0, SEGMENT) == (0, "its properties end in zeros: it is torn")


@pytest.mark.parametrize("offset", [-1, -(1 << 63), (1 << 63) // 20, (1 << 63) - 1])
def test_a_record_whose_offset_no_file_of_a_queue_can_hold_is_damaged(offset: int) -> None:
    record = foreign_record(draft(), 0, 0)

    seen = scan(record + foreign_record(draft(), offset, len(record)), 0, SEGMENT)

    assert (seen.end, seen.problem) == (len(record), f"it names topic b'orders', queue 0, offset {offset:,}")


def test_a_seal_that_rocketmq_copied_is_not_looked_at() -> None:
    sealed = encode_draft(draft(), 0, 0, 5, host=HOST)

    copied = sealed[:-CRC_BYTES] + sealed_crc(12_345)

    assert whole_end(copied, 0, SEGMENT) == (len(copied), "")


def test_a_producers_sequence_that_rocketmq_copied_is_not_believed() -> None:
    [seen] = scan(foreign_record(draft(identity=("p", 9)), 0, 0), 0, SEGMENT).entries

    assert (seen.producer_id, seen.sequence) == ("", -1)


@pytest.mark.parametrize(("level", "delay_s"), [("1", 1), ("3", 10), ("18", 7_200), ("99", 7_200)])
def test_the_queue_of_a_delayed_message_says_when_it_is_due(level: str, delay_s: int) -> None:
    delayed = with_properties(f"TAGS\x01t\x02DELAY\x01{level}\x02", "SCHEDULE_TOPIC_XXXX")

    [seen] = scan(foreign_record(delayed, 0, 0, store_ms=5_000), 0, SEGMENT).entries

    assert seen.tags_code == 5_000 + delay_s * 1_000


@pytest.mark.parametrize("level", ["0", "-1", "soon", "", "9" * 5_000])
def test_without_a_level_the_tag_decides(level: str) -> None:
    delayed = with_properties(f"TAGS\x01t\x02DELAY\x01{level}\x02", "SCHEDULE_TOPIC_XXXX")

    [seen] = scan(foreign_record(delayed, 0, 0), 0, SEGMENT).entries

    assert seen.tags_code == tags_code("t")


def test_a_delayed_message_that_was_stored_at_the_end_of_time_is_due_then() -> None:
    delayed = with_properties("DELAY\x0118\x02", "SCHEDULE_TOPIC_XXXX")

    [seen] = scan(foreign_record(delayed, 0, 0, store_ms=(1 << 63) - 1), 0, SEGMENT).entries

    assert seen.tags_code == (1 << 63) - 1


@pytest.mark.parametrize(("system_flag", "queue"), [(0, 0), (0x8, 0), (0x4, -1), (0xC, -1)])
def test_no_queue_knows_a_message_whose_transaction_is_open_or_was_rolled_back(system_flag: int, queue: int) -> None:
    [seen] = scan(foreign_record(draft(), 0, 0, 5, system_flag=system_flag), 0, SEGMENT).entries

    assert seen.queue == queue


def test_kinds_that_are_not_read_are_refused_by_name() -> None:
    with pytest.raises(NotRead, match="batch queue"):
        scan(foreign_record(draft(), 0, 0, 5, system_flag=0x80), 0, SEGMENT)
    with pytest.raises(NotRead, match="LMQ"):
        scan(foreign_record(with_properties("INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"), 0, 0), 0, SEGMENT)


def test_what_rocketmq_left_behind_a_mark_means_nothing() -> None:
    assert scan(mark(100).ljust(100, b"?"), 900, 1_000).end == 1_000
    assert scan(mark(99).ljust(100, b"?"), 900, 1_000).end == 900


def test_an_unknown_magic_is_unsupported() -> None:
    record = bytearray(foreign_record(draft(), 0, 0))
    record[4:8] = struct.pack(">I", 0xDAA320FF)

    assert whole_end(bytes(record), 0, SEGMENT) == (0, "magic daa320ff is unsupported")


def test_only_epochs_of_ours_are_sealed() -> None:
    epoch_history = (entry(1, 0, 7, 100), entry(1, FOREIGN, 8, 200), entry(2, 1, 9, 300), entry(3, 0, 10, 400))

    seals = ChecksumPolicy(epoch_history)

    assert seals.sealed_ranges == (
        SealedRange(0, 100, False),
        SealedRange(100, 200, True),
        SealedRange(200, 300, False),
        SealedRange(300, FOREVER, True),
    )
    assert [seals.at(position).sealed for position in (0, 99, 100, 199, 200, 299, 300, 10**9)] == [
        False,
        False,
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert not ChecksumPolicy(()).at(0).sealed
    seals.end_at(250)
    assert seals.sealed_ranges[-1] == SealedRange(250, FOREVER, False)


def test_a_foreign_stretch_carries_the_number_of_the_epoch_before_it() -> None:
    assert grows((entry(1, 0, 7, 0), entry(1, FOREIGN, 8, 5), entry(1, FOREIGN, 9, 6), entry(2, 0, 9, 7)))
    assert not grows((entry(1, 0, 7, 0), entry(1, 0, 8, 5)))
    assert not grows((entry(1, 0, 7, 5), entry(1, FOREIGN, 8, 5)))


def test_what_others_appended_is_not_counted_to_our_end() -> None:
    ours, foreign = entry(1, 0, 7, 0), entry(1, FOREIGN, 8, 50)

    assert last_own_end((ours,), PhysicalOffset(90)) == 90
    assert last_own_end((ours, foreign), PhysicalOffset(90)) == 50
    assert last_own_end((), PhysicalOffset(90)) == 90


def test_what_rocketmq_appended_to_one_replica_wins_no_election() -> None:
    def stands(end: int, *epoch_history: EpochEntry) -> Position:
        return Position(
            node="a/1",
            replica=ReplicaId("u1", "i1"),
            birth="b1",
            adopted=Epoch(1),
            log_end=PhysicalOffset(end),
            promised=Epoch(1),
            confirmed=PhysicalOffset(0),
            epoch_history=epoch_history,
        )

    ours, foreign = entry(1, 0, 7, 0), entry(1, FOREIGN, 8, 50)
    assert stands(90, ours, foreign).log_rank < stands(60, ours).log_rank < stands(90, ours).log_rank


def test_what_lies_before_both_first_epochs_is_left_to_the_content() -> None:
    master, half_a_copy = (entry(1, 0, 7, 1_000),), PhysicalOffset(600)

    assert common_end(ours=master, our_end=PhysicalOffset(2_000), theirs=(), their_end=half_a_copy) == 600
    assert common_end(ours=master, our_end=PhysicalOffset(2_000), theirs=(), their_end=PhysicalOffset(1_500)) == 1_000
    assert common_end(ours=(entry(1, 0, 7, 0),), our_end=PhysicalOffset(9), theirs=(), their_end=PhysicalOffset(9)) == 0
