import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.records.decoding import Unsupported, decode, message_of
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import (
    CRC_BYTES,
    MAGIC_2,
    MARK_BYTES,
    START,
    Host,
    decode_properties,
    lay_out,
    mark,
    problem_of,
    queue_problem,
    safe_topic,
    scan,
    sealed_crc,
    sequence_of,
    strip_crc,
    tags_code_of,
    whole_end,
)
from dittomq.errors import CorruptRecord
from dittomq.message import Draft
from tests.support.log_fragments import ODD, Kind, Writer

HOST = Host(bytes((10, 0, 0, 7)), 10911)
SEGMENT_END = 1 << 30
# A record's own checksum covers its body too: nobody looks at the body's beside it.
BODY = "its checksum does not match the body"

TEXT = st.text(st.characters(blacklist_characters="\x01\x02 ", blacklist_categories=["Cs"]), min_size=1, max_size=8)
NAMES = TEXT.filter(lambda name: name not in {"KEYS", "TAGS", "PID", "SEQ", "__CRC32#"})


def draft(properties: dict[str, str], body: bytes = b"body", topic: str = "orders") -> Draft:
    return Draft(topic, 3, -7, 1_111, body, "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode(), 0)


@given(
    body=st.binary(max_size=300),
    properties=st.dictionaries(NAMES, TEXT, max_size=4),
    keys=st.lists(TEXT, max_size=3),
    position=st.integers(0, 1 << 40),
)
def test_a_record_says_after_reading_what_was_written(body: bytes, properties: dict[str, str], keys: list[str], position: int) -> None:
    full = {**({"KEYS": " ".join(keys)} if keys else {}), "TAGS": "blue", **properties}

    record = encode_draft(draft(full, body), 42, position, 2_222, host=HOST)
    message = message_of(record)

    assert (message.topic, message.queue, message.queue_offset, message.physical_offset) == ("orders", 3, 42, position)
    assert (message.body, message.flag, message.born_ms, message.store_ms) == (body, -7, 1_111, 2_222)
    assert (message.keys, message.tag, message.properties) == (tuple(keys), "blue", properties)
    assert decode(record, position).born_host == HOST


@given(bodies=st.lists(st.binary(max_size=50), min_size=1, max_size=5), data=st.data())
def test_no_changed_byte_goes_unnoticed(bodies: list[bytes], data: st.DataObject) -> None:
    log = b""
    for offset, body in enumerate(bodies):
        log += encode_draft(draft({"TAGS": "t"}, body), offset, len(log), 9, host=HOST)
    at = data.draw(st.integers(0, len(log) - 1))
    changed = bytearray(log)
    changed[at] ^= data.draw(st.integers(1, 255))

    before, after = scan(log, 0, SEGMENT_END), scan(bytes(changed), 0, SEGMENT_END)

    assert before.end == len(log)
    assert after.end <= at
    assert after.entries == before.entries[: len(after.entries)]
    assert whole_end(bytes(changed), 0, SEGMENT_END) == (after.end, after.problem)


@given(cut=st.integers(0, 400))
def test_a_record_that_is_cut_off_is_awaited_and_never_taken(cut: int) -> None:
    first = encode_draft(draft({}), 0, 0, 9, host=HOST)
    log = first + encode_draft(draft({}, b"x" * 200), 1, len(first), 9, host=HOST)

    seen = scan(log[:cut], 0, SEGMENT_END)

    assert seen.problem == ""
    assert seen.end == (len(log) if cut >= len(log) else len(first) if cut >= len(first) else 0)


def test_the_record_checksum_is_written_lowest_digit_first_and_padded_behind() -> None:
    assert sealed_crc(1_234) == b"__CRC32#\x014321000000\x02"
    assert sealed_crc(0xFFFFFFFF) == b"__CRC32#\x017463847412\x02"


def test_the_record_checksum_covers_everything_before_it() -> None:
    record = encode_draft(draft({"a": "b"}), 5, 77, 9, host=HOST)

    assert record.endswith(sealed_crc(zlib.crc32(record[:-20])))
    assert problem_of(record, 77, sealed=True) == ""
    assert problem_of(record, 78, sealed=True) == "it says that it lies at 77"


def test_a_record_checksum_that_a_producer_sent_is_left_out() -> None:
    forged = b"a\x01b\x02__CRC32#\x010000000000\x02c\x01d"

    assert strip_crc(forged) == b"a\x01b\x02c\x01d\x02"
    assert message_of(encode_draft(draft({})._replace(properties=forged), 0, 0, 9, host=HOST)).properties == {"a": "b", "c": "d"}


def test_a_record_without_checksum_whose_properties_end_in_zeros_is_torn() -> None:
    whole = encode_draft(draft({"name": "value of some length"}), 0, 0, 9, host=HOST)
    torn = whole[:-40] + bytes(40)

    assert problem_of(torn, 0, sealed=False) == "its properties end in zeros: it is torn"
    assert problem_of(torn, 0, sealed=True) == "it has no record checksum"


def test_an_unknown_magic_is_unsupported_and_not_corrupt() -> None:
    record = bytearray(encode_draft(draft({}), 0, 0, 9, host=HOST))
    record[4:8] = b"\xda\xa3\x20\xff"

    assert scan(bytes(record), 0, SEGMENT_END).problem == "magic daa320ff is unsupported"
    with pytest.raises(Unsupported, match="daa320ff"):
        decode(bytes(record), 0)


@pytest.mark.parametrize("kind", ODD)
def test_a_scan_takes_no_record_in_which_a_closer_look_finds_a_problem(kind: Kind) -> None:
    record = Writer(random.Random(1), 0, {}, {}).record(kind)

    seen = scan(record, 0, SEGMENT_END)

    if lay_out(record) is None:
        with pytest.raises(CorruptRecord):
            message_of(record)
    closer = problem_of(record, 0, sealed=True)
    assert bool(seen.entries) != bool(seen.problem)
    assert seen.problem or (closer in {"", BODY} and not queue_problem(record))


def test_a_mark_counts_when_the_segment_is_complete_and_zero_behind_it() -> None:
    rest = mark(100).ljust(100, b"\0")

    assert scan(rest[:-1], 900, 1_000)[1:] == (900, "")
    assert scan(rest, 900, 1_000).end == 1_000
    assert scan(rest[:-1] + b"x", 900, 1_000).problem == "bytes behind the end-of-file mark are not zeros"
    assert scan(mark(99).ljust(100, b"\0"), 900, 1_000).problem == "an end-of-file mark names 99 bytes, 100 remain"


def test_a_record_leaves_room_for_the_mark() -> None:
    record = encode_draft(draft({}), 0, 0, 9, host=HOST)

    assert scan(record, 0, len(record) + MARK_BYTES).end == len(record)
    assert scan(record, 0, len(record) + MARK_BYTES - 1).problem == f"a record cannot have {len(record)} bytes here"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"PID\x01abc\x02SEQ\x0117\x02KEYS\x01k\x02", ("abc", 17)),
        (b"KEYS\x01k\x02PID\x01abc\x02SEQ\x0117\x02", ("", -1)),
        (b"PID\x01abc\x02KEYS\x01k\x02", ("", -1)),
        (b"PID\x01abc\x02SEQ\x01x\x02", ("", -1)),
        (b"PID\x01abc", ("", -1)),
        (b"PID\x01", ("", -1)),
        (b"", ("", -1)),
    ],
)
def test_a_producers_identity_counts_only_where_we_put_it(properties: bytes, expected: tuple[str, int]) -> None:
    assert sequence_of(properties) == expected


@pytest.mark.parametrize(
    ("properties", "code"), [(b"TAGS\x01TagA\x02", 2_598_919), (b"a\x01b\x02TAGS\x01TagA", 2_598_919), (b"xTAGS\x01TagA\x02", 0), (b"", 0)]
)
def test_the_tag_is_found_only_as_a_property_of_its_own(properties: bytes, code: int) -> None:
    assert tags_code_of(properties) == code


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b", b"\xff", b"x" * 256])
def test_no_topic_leaves_its_folder(name: bytes) -> None:
    assert safe_topic(name) == ""


def of_two_byte_length(at: int, long: int) -> bytes:
    """A sealed record whose topic is too long for a folder."""
    topic = b"%d" % at * long
    parts = encode_draft(draft({}, b"b"), 0, 0, 9, host=HOST)[8:89], len(topic).to_bytes(2, "big"), topic, CRC_BYTES.to_bytes(2, "big")
    rest = b"".join(parts)
    return sealed(START.pack(START.size + len(rest) + CRC_BYTES, MAGIC_2) + rest)


def of_negative_body_length(at: int, long: int) -> bytes:
    """A sealed record of lengths that cannot be."""
    record = bytearray(encode_draft(draft({}, b"%d" % at * long), 0, 0, 9, host=HOST)[:-CRC_BYTES])
    record[84:88] = b"\xff" * 4
    return sealed(bytes(record))


def sealed(record: bytes) -> bytes:
    return record + sealed_crc(zlib.crc32(record))


@pytest.mark.parametrize("made", [of_two_byte_length, of_negative_body_length])
def test_no_memory_stays_taken_by_what_can_be_no_topic(made: Callable[[int, int], bytes]) -> None:
    scan(made(1, 10_000), 0, SEGMENT_END)
    tracemalloc.start()
    try:
        problems = [scan(made(at, 10_000), 0, SEGMENT_END).problem for at in range(100, 200)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert all(problems)
    assert held < 500_000


def test_properties_keep_0x01_inside_a_value_and_drop_what_has_none() -> None:
    assert decode_properties(b"a\x01b\x01c\x02junk\x02d\x01") == {"a": "b\x01c", "d": ""}
