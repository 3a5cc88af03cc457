"""Records of every kind as bytes, and back."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.decoding import Record, decode
from dittomq.commitlog.records.encoding import encode
from dittomq.commitlog.records.format import MAGIC_1, MAGIC_2, Host, problem_of, sealed_crc

UNSEALED = sealed_crc(0)
I32, I64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
PLAIN = Record(
    0, MAGIC_1, 0, 3, 7, 42, 4_096, 0, 1_111, Host(bytes(4), 1), 2_222, Host(bytes(4), 2), 0, 0, b"body", "orders", b"TAGS\x01t\x02"
)  # fmt: skip


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Any version, hosts, flags, lengths, sealed or not."""
    magic, flag = draw(st.sampled_from((MAGIC_1, MAGIC_2))), draw(I32)
    names = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=127 if magic == MAGIC_1 else 1_000)
    born, stored = (
        Host(draw(st.binary(min_size=size, max_size=size)), draw(I32)) for size in (16 if flag & bit else 4 for bit in (0x10, 0x20))
    )
    properties = draw(st.binary(max_size=300)) + draw(st.sampled_from((b"", UNSEALED)))
    return Record(
        0, magic, 0, draw(I32), draw(I32), draw(I64), draw(st.integers(0, 1 << 62)), flag, draw(I64), born, draw(I64), stored,
        draw(I32), draw(I64), draw(st.binary(max_size=300)), draw(names), properties,
    )  # fmt: skip


@given(record=records())
@example(record=replace(PLAIN, property_bytes=UNSEALED[:9]))
def test_a_record_of_any_kind_is_whole_and_says_what_was_put_in(record: Record) -> None:
    data = encode(record)

    found = decode(data, record.physical_offset)
    sealed = record.property_bytes.endswith(UNSEALED)
    stated = found.property_bytes.removesuffix(sealed_crc(crc32(data[:-20]))) + UNSEALED if sealed else found.property_bytes
    assert found.size == len(data)
    assert replace(found, size=0, body_crc=0, property_bytes=stated) == record
    assert encode(found) == data
    if sealed:
        assert problem_of(data, record.physical_offset, sealed=True) == ""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(PLAIN, magic=0xCBD43194), "no record with magic cbd43194 holds a topic of 6 bytes"),
        (replace(PLAIN, topic="t" * 128), "no record with magic daa320a7 holds a topic of 128 bytes"),
        (replace(PLAIN, magic=MAGIC_2, topic="t" * 65_536), "no record with magic daa320ab holds a topic of 65,536 bytes"),
        (replace(PLAIN, property_bytes=bytes(32_768)), "32,768 bytes of properties are more than 32,767"),
        (replace(PLAIN, system_flag=0x10), "the system flag says otherwise than a host's 4 bytes"),
        (replace(PLAIN, store_host=Host(bytes(16), 1)), "the system flag says otherwise than a host's 16 bytes"),
    ],
)
def test_fields_that_no_record_can_hold_are_refused(changed: Record, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode(changed)
