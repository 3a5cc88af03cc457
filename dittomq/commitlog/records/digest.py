"""Digests that say whether two copies of a range are equal without moving it.

A leaf is xxh3-128 of up to 1 MiB; the chain digest of a range is xxh3-128 over its leaves' digests. The salt is the seed of both.
Leaves are counted from the range's start, and anew from each segment's start.
"""

from collections.abc import Callable, Iterator, Sequence

import xxhash

from dittomq.copies import LEAF_BYTES
from dittomq.errors import OffsetOutOfRange

Read = Callable[[int, int], bytes]
"""Reads up to that many bytes from a position on; fewer only where the segment or the log ends."""


def leaf_digest(data: bytes, salt: int = 0) -> bytes:
    """Digest of one leaf."""
    return xxhash.xxh3_128_digest(data, salt)


def root_digest(leaves: Sequence[bytes], salt: int = 0) -> bytes:
    """Digest of a range from those of its leaves."""
    return xxhash.xxh3_128_digest(b"".join(leaves), salt)


def leaves_of(read: Read, start: int, end: int, salt: int = 0, *, leaf_bytes: int = LEAF_BYTES) -> Iterator[bytes]:
    """Digests of the leaves of [start, end), in order; raises OffsetOutOfRange when the log ends before `end`."""
    at = start
    while at < end:
        data = read(at, min(leaf_bytes, end - at))
        if not data:
            raise OffsetOutOfRange("byte", end, start, at)
        yield leaf_digest(data, salt)
        at += len(data)
