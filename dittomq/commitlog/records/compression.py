"""Bodies as their producers made them: RocketMQ's clients compress large ones. Never inflates more than a message may hold.

The system flag says so, 0x1, and how in 0x700: 0 or 3 zlib, 1 an LZ4 frame, 2 Zstandard. RocketMQ 4.9 knows zlib only.

Source: Apache RocketMQ 5.3.3, MessageSysFlag, CompressionType, MessageDecoder#decode.
"""

import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dittomq.errors import DittoError, MessageTooLarge
from dittomq.message import MAX_BODY_BYTES

COMPRESSED = 0x1
_KIND_SHIFT = 8
_KIND_MASK = 0x7
_MORE = MAX_BODY_BYTES + 1
# What a stream may have us allocate beside the result.
_WINDOW_BYTES = 8 * 1024 * 1024


@dataclass(eq=False)
class DecompressionFailed(DittoError):
    """`why` in words."""

    reason: ClassVar[str] = "CANNOT_INFLATE"
    why: str

    def __str__(self) -> str:
        return f"its compressed body cannot be inflated: {self.why}"


class MissingPackage(DecompressionFailed):
    """The body may be whole; this installation cannot read it."""


def inflate(body: bytes, system_flag: int) -> bytes:
    """The body as it was before the producer's client compressed it.

    Raises MessageTooLarge for one that would have more than MAX_BODY_BYTES, before they are allocated; DecompressionFailed; MissingPackage.
    """
    if not system_flag & COMPRESSED:
        return body
    kind = system_flag >> _KIND_SHIFT & _KIND_MASK
    inflated = _INFLATORS.get(kind, _unknown)(body)
    if len(inflated) > MAX_BODY_BYTES:
        raise MessageTooLarge("the inflated body", len(inflated), MAX_BODY_BYTES)
    return inflated


def _zlib(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(body, _MORE)
    except zlib.error as problem:
        raise DecompressionFailed(str(problem)) from problem
    return _ended(inflated, whole=stream.eof)


def _lz4(body: bytes) -> bytes:
    frame = _package("lz4", "lz4.frame")
    stream = frame.LZ4FrameDecompressor()
    try:
        inflated = bytes(stream.decompress(body, _MORE))
    except RuntimeError as problem:
        raise DecompressionFailed(str(problem)) from problem
    return _ended(inflated, whole=stream.eof)


def _zstd(body: bytes) -> bytes:
    zstandard = _package("zstandard", "zstandard")
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(body) as stream:
            inflated = bytes(stream.read(_MORE))
        if len(inflated) == _MORE:
            return inflated
        whole = decompressor.decompressobj()  # a reader does not tell whether the frame came to its end; now it is known to be small
        whole.decompress(body)
    except zstandard.ZstdError as problem:
        raise DecompressionFailed(str(problem)) from problem
    return _ended(inflated, whole=whole.eof)


def _package(name: str, module: str) -> Any:
    """Loaded when the first such body is read: most stores hold none."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        raise MissingPackage(f"the package {name} is not installed; install dittomq with its dependencies") from problem


def _unknown(body: bytes) -> bytes:
    raise DecompressionFailed(f"{len(body):,} bytes of a compression that this version does not know")


def _ended(inflated: bytes, *, whole: bool) -> bytes:
    if not whole and len(inflated) < _MORE:
        raise DecompressionFailed("it ends too early")
    return inflated


_INFLATORS: dict[int, Callable[[bytes], bytes]] = {0: _zlib, 1: _lz4, 2: _zstd, 3: _zlib}
