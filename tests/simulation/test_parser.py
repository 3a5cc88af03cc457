import pytest

from tests.simulation.log_bytes import SEGMENT_BYTES, log_of
from tests.simulation.parser import Malformed, parse_log, record_at

FIRST = "commitlog/00000000000000000000"
SECOND = f"commitlog/{SEGMENT_BYTES:020d}"


def changed(files: dict[str, bytes], at: int, content: bytes) -> dict[str, bytes]:
    whole = bytearray(files[FIRST])
    whole[at : at + len(content)] = content
    return {**files, FIRST: bytes(whole)}


def test_records_are_read_across_segments() -> None:
    files = log_of(*(("t", 0, number, bytes(30_000)) for number in range(5)))

    log = parse_log(files)

    assert len(files) == 3
    assert [record.queue_offset for record in log.records] == [0, 1, 2, 3, 4]
    assert log.records[2].physical_offset == SEGMENT_BYTES
    assert len(log.content) == log.end == log.records[-1].physical_offset + log.records[-1].size


def test_an_empty_folder_is_an_empty_log() -> None:
    log = parse_log({})

    assert (log.start, log.end, log.records) == (0, 0, ())


@pytest.mark.parametrize(
    ("at", "content", "problem"),
    [
        (4, b"\0\0\0\1", "magic"),
        (0, b"\0\0\0\1", "size 1"),
        (12, b"\0\0\0\1", "record CRC"),
        (28, b"\0\0\0\0\0\0\0\5", "lies at 5"),
        (95, b"X", "body CRC"),
        (5_000, b"X", "zero"),
    ],
)
def test_damage_is_named(at: int, content: bytes, problem: str) -> None:
    files = changed(log_of(("t", 0, 0, b"0123456789")), at, content)

    with pytest.raises(Malformed, match=problem):
        parse_log(files)


def test_a_missing_segment_is_named() -> None:
    files = log_of(*(("t", 0, number, bytes(30_000)) for number in range(5)))
    del files[SECOND]

    with pytest.raises(Malformed, match="does not begin where"):
        parse_log(files)


def test_a_record_is_found_by_its_offset_whatever_lies_around_it() -> None:
    files = log_of(("t", 0, 0, b"one"), ("t", 0, 1, b"two"))
    second = parse_log(files).records[1]

    assert record_at(changed(files, 0, bytes(second.physical_offset)), second.physical_offset) == second
    with pytest.raises(Malformed):
        record_at(files, second.physical_offset + 1)
    with pytest.raises(Malformed, match="no file"):
        record_at({}, 0)
