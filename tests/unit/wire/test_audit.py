"""Audit messages and values."""

from dittomq.copies import RangeDigests, ReplicaDescription
from dittomq.epoch_history import EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion
from dittomq.wire import audit as wire


def test_what_a_copy_says_of_itself_crosses_the_wire_unchanged() -> None:
    epoch_history = (EpochEntry(Epoch(1), 0, 2**64 - 1, PhysicalOffset(0)), EpochEntry(Epoch(3), 1, 7, PhysicalOffset(2**40)))
    start, end, flushed, confirmed = (PhysicalOffset(number) for number in (0, 2**41, 2**41 - 1, 2**41 - 2))
    held = ReplicaDescription(
        "a/1", "c", "f" * 32, "SLAVE", epoch_history, 4, start, end, flushed, confirmed, 2**30, DataVersion(1, 2, 3), "0.1.0"
    )

    assert wire.replica_description(wire.describe_response(held)) == held
    assert held.epoch == 3


def test_digests_cross_the_wire_unchanged() -> None:
    digests = RangeDigests(PhysicalOffset(5), PhysicalOffset(9), b"r" * 16, (b"a" * 16, b"b" * 16), "a reason")

    assert wire.range_digests(wire.digest_range_response(digests)) == digests
