"""Messages encoded by columns are the same bytes as messages encoded one by one."""

from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.records.bulk import Bulk, Stamp
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import UNIT, Host
from dittomq.message import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, Draft

NAMES = {"orders": b"\x06orders", "linien-ü": b"\x09linien-\xc3\xbc"}
STAMP = Stamp(1_700_000_000_123, Host(bytes([10, 0, 0, 7]), 10_911))
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
    bulk = Bulk.of(drafts, NAMES, identified=True)
    assert bulk is not None

    found = bulk.encode(position, offsets, STAMP)

    expected, at = b"", position
    for index, each in enumerate(drafts):
        record = encode_draft(each, offsets[index], at, STAMP.store_ms, STAMP.host)
        expected += record
        assert (found.starts[index], bulk.sizes[index], found.ends[index]) == (at, len(record), at + len(record))
        assert found.units[index].tobytes() == UNIT.pack(at, len(record), each.tags_code)
        at += len(record)
    assert bytes(found.data) == expected
    assert bulk.size == len(expected)
    assert bulk.keyed or not any(b"KEYS" in each.properties for each in drafts)


def test_a_message_that_needs_a_closer_look_is_not_encoded_with_many() -> None:
    def easy(message: Draft, *, identified: bool = True) -> bool:
        return Bulk.of([draft(), message], NAMES, identified=identified) is not None

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
