"""Keeps the memory of large frames with the process.

A frame of a megabyte is copied several times on its way, each time into a new block. glibc gives blocks of that size back to the
kernel as soon as they are free, so that each copy faults its pages in anew: more than what is done with the bytes. See mallopt(3).
"""

import ctypes
from typing import Final

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_OPTIONS: Final = ((_M_TRIM_THRESHOLD, 256 << 20), (_M_TOP_PAD, 16 << 20), (_M_MMAP_THRESHOLD, 32 << 20))


def keep_buffers() -> None:
    """Let up to 256 MiB that were used once stay with this process. Without effect where the C library has no such options."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS:
            mallopt(option, value)
