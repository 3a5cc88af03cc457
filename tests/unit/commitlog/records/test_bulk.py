"""Messages encoded by columns are the same bytes as messages encoded one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.records.bulk import BulkMessages, GroupStamp
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import UNIT, Host
from dittomq.message import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, Draft, DraftBatch, DraftRuns

NAMES = {"orders": b"\x06orders", "linien-ü": b"\x09linien-\xc3\xbc"}
STAMP = GroupStamp(1_700_000_000_123, Host(bytes([10, 0, 0, 7]), 10_911))
INT_32 = st.integers(-(2**31), 2**31 - 1)
INT_64 = st.integers(-(2**63), 2**63 - 1)
PROPERTIES = st.sampled_from([b"", b"TAGS\x01a\x02", b"KEYS\x01k-1 k-2\x02", b"PID\x01p\x02SEQ\x0117\x02", b"a\x01\x00\xff\x02b\x01\x02"])
DRAFTS = st.builds(
    Draft, st.sampled_from(sorted(NAMES)), st.integers(0, 2**31 - 1), INT_32, INT_64, st.binary(max_size=50), PROPERTIES, INT_64
)


def draft(body: bytes = b"body", properties: bytes = b"", topic: str = "orders", queue: int = 0) -> Draft:
    return Draft(topic, queue, 0, 1_000, body, properties, 0)


@given(st.lists(DRAFTS, min_size=1, max_size=40), st.integers(0, 2**60), st.data())
def test_many_messages_are_encoded_as_each_by_itself(drafts: list[Draft], position: int, data: st.DataObject) -> None:
    offsets = data.draw(st.lists(st.integers(0, 2**62), min_size=len(drafts), max_size=len(drafts)))
    bulk = BulkMessages.of(drafts, NAMES, identified=True)
    assert bulk is not None

    found = bulk.encode(position, offsets, STAMP)

    expected, at = b"", position
    for index, each in enumerate(drafts):
        record = encode_draft(each, offsets[index], at, STAMP.store_ms, host=STAMP.host)
        expected += record
        assert (found.starts[index], bulk.sizes[index], found.ends[index]) == (at, len(record), at + len(record))
        assert found.units[index].tobytes() == UNIT.pack(at, len(record), each.tags_code)
        at += len(record)
    assert bytes(found.data) == expected
    assert bulk.size == len(expected)
    assert bulk.keyed or not any(b"KEYS" in each.properties for each in drafts)


def run_of(topic: str, queue: int, born_ms: int, messages: list[tuple[bytes, bytes]], *, code: int) -> DraftBatch:
    return DraftBatch(topic, queue, born_ms, [body for body, _ in messages], [properties for _, properties in messages], code)


MESSAGES = st.lists(st.tuples(st.binary(max_size=50), PROPERTIES), min_size=1, max_size=9)
RUNS = st.lists(st.builds(run_of, st.sampled_from(sorted(NAMES)), st.integers(0, 3), INT_64, MESSAGES, code=INT_64), min_size=1, max_size=6)


@given(RUNS, st.integers(0, 2**60))
def test_runs_are_encoded_as_their_messages(runs: list[DraftBatch], position: int) -> None:
    drafts = DraftRuns(runs)
    offsets = range(7, 7 + len(drafts))
    short, long = BulkMessages.of(drafts, NAMES, identified=True), BulkMessages.of(list(drafts), NAMES, identified=True)
    assert short is not None
    assert long is not None

    found, expected = short.encode(position, offsets, STAMP), long.encode(position, offsets, STAMP)

    assert bytes(found.data) == bytes(expected.data)
    assert (found.starts == expected.starts).all()
    assert (found.units == expected.units).all()
    assert (short.size, short.keyed, list(short.properties)) == (long.size, long.keyed, list(long.properties))
    into = [[(topic, queue) for topic, queue, start, end in bulk.neighbours for _ in range(start, end)] for bulk in (short, long)]
    assert into[0] == into[1] == [(each.topic, each.queue) for each in drafts]


@given(RUNS)
def test_runs_of_drafts_are_a_sequence_of_them(runs: list[DraftBatch]) -> None:
    drafts, spelled = DraftRuns(runs), [each for run in runs for each in run.each()]

    assert len(drafts) == len(spelled)
    assert list(drafts) == spelled
    assert [drafts[index] for index in range(len(spelled))] == spelled
    assert (drafts[-1], drafts[2:5], drafts[1:]) == (spelled[-1], spelled[2:5], spelled[1:])


@pytest.mark.parametrize("run", [DraftBatch("unknown", 0, 1, [b"a"], [b""], 0), DraftBatch("orders", -1, 1, [b"a"], [b""], 0)])
def test_runs_that_need_a_closer_look_are_not_encoded_with_many(run: DraftBatch) -> None:
    assert BulkMessages.of(DraftRuns([DraftBatch("orders", 0, 1, [b"a"], [b""], 0), run]), NAMES, identified=True) is None


def test_a_message_that_needs_a_closer_look_is_not_encoded_with_many() -> None:
    def easy(message: Draft, *, identified: bool = True) -> bool:
        return BulkMessages.of([draft(), message], NAMES, identified=identified) is not None

    assert easy(draft(b"x" * MAX_BODY_BYTES))
    assert not easy(draft(b"x" * (MAX_BODY_BYTES + 1)))
    assert easy(draft(properties=b"x" * (MAX_PROPERTIES_BYTES - 21) + b"\x02"))
    assert not easy(draft(properties=b"x" * (MAX_PROPERTIES_BYTES - 20) + b"\x02"))
    assert not easy(draft(properties=b"TAGS\x01a"))
    assert not easy(draft(properties=b"__CRC32#\x011234567890\x02"))
    assert not easy(draft(topic="unknown"))
    assert not easy(draft(queue=-1))
    assert easy(draft(properties=b"PID\x01p\x02SEQ\x010\x02"))
    assert not easy(draft(properties=b"PID\x01p\x02SEQ\x010\x02"), identified=False)
