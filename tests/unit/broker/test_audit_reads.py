"""A broker's side of the audit."""

import asyncio

import pytest

from dittomq.broker.audit_reads import MAX_RUNNING, MAX_WAITING, AuditReads
from dittomq.commitlog.records.digest import leaf_digest, root_digest
from dittomq.copies import LEAF_BYTES, RangeDigests
from dittomq.doors.workers import ThreadWorkers
from dittomq.errors import DittoError, InvalidField, LimitReached, OffsetOutOfRange
from dittomq.offsets import PhysicalOffset
from tests.support.audited_cluster import BytesStore, served

SEGMENT = 20 * LEAF_BYTES
DATA = bytes(range(256)) * (30 * LEAF_BYTES // 256)


class Audited:
    """An Auditing over a byte string, with real threads."""

    def __init__(self) -> None:
        self.store = BytesStore(DATA, SEGMENT)
        self._workers = ThreadWorkers()
        self.auditing = AuditReads(self.store, self._workers.lane("audit"), served("a/0", self.store).describe)

    def digests(self, start: int, end: int, *, salt: int = 0, leaves: bool = True) -> list[RangeDigests]:
        async def collect() -> list[RangeDigests]:
            return [each async for each in self.auditing.digests(PhysicalOffset(start), PhysicalOffset(end), salt, leaves)]

        return asyncio.run(collect())

    def read(self, start: int, end: int) -> bytes:
        async def collect() -> bytes:
            return b"".join([piece.data async for piece in self.auditing.read(PhysicalOffset(start), PhysicalOffset(end))])

        return asyncio.run(collect())


def test_range_over_two_segments_is_answered_in_two_parts() -> None:
    """Each has leaves from its start."""
    first, second = Audited().digests(5 * LEAF_BYTES + 7, 29 * LEAF_BYTES + 3, salt=9)

    assert (first.start, first.end, second.start, second.end) == (5 * LEAF_BYTES + 7, SEGMENT, SEGMENT, 29 * LEAF_BYTES + 3)
    expected = [leaf_digest(DATA[at : min(at + LEAF_BYTES, SEGMENT)], 9) for at in range(first.start, SEGMENT, LEAF_BYTES)]
    assert list(first.leaves) == expected
    assert first.root == root_digest(expected, 9)


def test_leaves_are_left_out_unless_asked_for_and_the_root_is_the_same() -> None:
    with_leaves, without = Audited().digests(0, LEAF_BYTES), Audited().digests(0, LEAF_BYTES, leaves=False)

    assert without[0].leaves == ()
    assert without[0].root == with_leaves[0].root


def test_a_salt_changes_every_digest() -> None:
    assert Audited().digests(0, LEAF_BYTES, salt=1)[0].root != Audited().digests(0, LEAF_BYTES, salt=2)[0].root


def test_what_the_disk_does_not_give_is_unreadable_and_has_no_digest() -> None:
    audited = Audited()
    audited.store.bad = range(9 * LEAF_BYTES, 9 * LEAF_BYTES + 1)

    first, second = audited.digests(0, len(DATA))

    assert (first.root, first.leaves) == (b"", ())
    assert "Input/output error" in first.unreadable
    assert second.unreadable == ""


def test_raw_bytes_come_back_as_they_lie_there_across_segments() -> None:
    start, end = SEGMENT - 100, SEGMENT + 2 * LEAF_BYTES

    assert Audited().read(start, end) == DATA[start:end]


@pytest.mark.parametrize(
    ("start", "end", "error"),
    [
        (5, 5, InvalidField),
        (-1, 5, OffsetOutOfRange),
        (0, len(DATA) + 1, OffsetOutOfRange),
        (len(DATA), len(DATA) + 5, OffsetOutOfRange),
    ],
)
def test_a_range_outside_the_log_is_refused(start: int, end: int, error: type[DittoError]) -> None:
    with pytest.raises(error):
        Audited().digests(start, end)
    with pytest.raises(error):
        Audited().read(start, end)


def test_more_raw_bytes_than_the_limit_are_refused() -> None:
    audited = Audited()
    audited.store.data = bytes(65 * LEAF_BYTES)

    with pytest.raises(InvalidField, match="the limit is 67,108,864"):
        audited.read(0, 65 * LEAF_BYTES)


def test_callers_beyond_the_queue_are_refused_and_the_others_served() -> None:
    audited = Audited()

    async def one() -> bool:
        try:
            return [each async for each in audited.auditing.digests(PhysicalOffset(0), PhysicalOffset(10), 0, False)] != []
        except LimitReached:
            return False

    async def many() -> list[bool]:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(one()) for _ in range(MAX_RUNNING + MAX_WAITING + 5)]
        return [task.result() for task in asked]

    served_or_not = asyncio.run(many())

    assert served_or_not.count(True) == MAX_RUNNING + MAX_WAITING
