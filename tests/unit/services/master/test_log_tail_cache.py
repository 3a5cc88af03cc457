"""The master's newest bytes in memory: whole records, neighbours, bounded."""

from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.store import AppendGroup
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.places import AppendResult
from dittomq.replication.throttle import MOST_CHUNK_BYTES
from services.master.log_tail_cache import TAIL_BYTES, LogTailCache


def group(start: int, sizes: list[int]) -> AppendGroup:
    placed = AppendResult("orders", 0, QueueOffset(0), PhysicalOffset(start), sizes, 0)
    data = b"".join(bytes([number % 251]) * size for number, size in enumerate(sizes, start))
    return AppendGroup(PhysicalOffset(start), placed.end, [(PhysicalOffset(start), data)], [[placed]], 0)


def far() -> PhysicalOffset:
    return PhysicalOffset(1 << 60)


@given(st.lists(st.lists(st.integers(1, 400_000), min_size=1, max_size=12), min_size=1, max_size=6))
def test_reading_on_from_any_chunks_end_gives_all_bytes_in_whole_records(groups: list[list[int]]) -> None:
    tail, start, everything = LogTailCache(), 0, b""
    borders = {0}
    for sizes in groups:
        made = group(start, sizes)
        tail.add(made)
        everything += made.pieces[0][1]
        for size in sizes:
            start += size
            borders.add(start)

    read = b""
    while len(read) < len(everything):
        chunk = tail.read(PhysicalOffset(len(read)), far(), MOST_CHUNK_BYTES)
        assert chunk is not None
        assert len(chunk) <= MOST_CHUNK_BYTES
        read += chunk
        assert len(read) in borders

    assert read == everything


def test_a_record_larger_than_a_chunk_travels_alone() -> None:
    tail = LogTailCache()
    tail.add(group(0, [100, 3 * MOST_CHUNK_BYTES, 100]))

    sizes = []
    at = 0
    while chunk := tail.read(PhysicalOffset(at), far(), MOST_CHUNK_BYTES):
        sizes.append(len(chunk))
        at += len(chunk)

    assert sizes == [100, 3 * MOST_CHUNK_BYTES, 100]


def test_what_is_no_longer_here_is_not_answered() -> None:
    tail = LogTailCache()
    for number in range(40):
        tail.add(group(number * MOST_CHUNK_BYTES, [MOST_CHUNK_BYTES]))

    assert tail.read(PhysicalOffset(0), far(), MOST_CHUNK_BYTES) is None
    assert tail.read(PhysicalOffset(40 * MOST_CHUNK_BYTES - TAIL_BYTES), far(), MOST_CHUNK_BYTES) is not None


def test_a_position_inside_a_record_is_not_answered() -> None:
    tail = LogTailCache()
    tail.add(group(0, [100]))

    assert tail.read(PhysicalOffset(50), far(), MOST_CHUNK_BYTES) is None


def test_nothing_beyond_the_limit_is_read() -> None:
    tail = LogTailCache()
    tail.add(group(0, [100]))
    tail.add(group(100, [100]))

    assert tail.read(PhysicalOffset(0), PhysicalOffset(100), MOST_CHUNK_BYTES) == tail.read(
        PhysicalOffset(0), PhysicalOffset(150), MOST_CHUNK_BYTES
    )
    assert tail.read(PhysicalOffset(100), PhysicalOffset(150), MOST_CHUNK_BYTES) is None


def test_small_groups_are_joined_only_as_far_as_is_asked_for() -> None:
    tail = LogTailCache()
    for number in range(10):
        tail.add(group(100 * number, [100]))

    assert [len(tail.read(PhysicalOffset(0), far(), most) or b"") for most in (50, 350, 1_000)] == [100, 300, 1_000]
