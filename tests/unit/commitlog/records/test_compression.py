"""Bodies that a producer's client compressed: inflated for readers, and never beyond the limit."""

import sys
import tracemalloc
import zlib

import lz4.frame
import pytest
import zstandard

from dittomq.commitlog.records.compression import DecompressionFailed, MissingPackage, inflate
from dittomq.errors import MessageTooLarge
from dittomq.message import MAX_BODY_BYTES

PLAIN, ZLIB_49, LZ4, ZSTD, ZLIB = 0x0, 0x1, 0x101, 0x201, 0x301


def deflated(body: bytes, system_flag: int) -> bytes:
    if system_flag == LZ4:
        return bytes(lz4.frame.compress(body))
    if system_flag == ZSTD:
        stream = zstandard.ZstdCompressor().compressobj()
        return bytes(stream.compress(body) + stream.flush())
    return zlib.compress(body)


ALL = pytest.mark.parametrize("system_flag", [ZLIB_49, LZ4, ZSTD, ZLIB], ids=["zlib of 4.9", "lz4", "zstd", "zlib"])


def test_a_body_that_nobody_compressed_is_left_alone() -> None:
    assert inflate(zlib.compress(b"mine"), PLAIN) == zlib.compress(b"mine")


@ALL
@pytest.mark.parametrize("size", [0, 1, 70_000, MAX_BODY_BYTES])
def test_a_compressed_body_is_what_its_producer_sent(system_flag: int, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)

    assert inflate(deflated(body, system_flag), system_flag) == body


@pytest.mark.tier("test")
@ALL
def test_body_that_inflates_beyond_the_limit_is_refused_unallocated(system_flag: int) -> None:
    bomb = deflated(bytes(256 * 1024 * 1024), system_flag)

    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge, match="the inflated body"):
            inflate(bomb, system_flag)
        assert tracemalloc.get_traced_memory()[1] < 4 * MAX_BODY_BYTES
    finally:
        tracemalloc.stop()


@ALL
def test_one_byte_beyond_the_limit_is_refused(system_flag: int) -> None:
    with pytest.raises(MessageTooLarge):
        inflate(deflated(bytes(MAX_BODY_BYTES + 1), system_flag), system_flag)


@ALL
def test_a_body_that_ends_too_early_is_no_message(system_flag: int) -> None:
    with pytest.raises(DecompressionFailed, match="ends too early"):
        inflate(deflated(b"a body " * 1_000, system_flag)[:-5], system_flag)


@ALL
def test_bytes_of_no_compression_are_no_message(system_flag: int) -> None:
    deflated(b"", system_flag)

    with pytest.raises(DecompressionFailed, match="cannot be inflated"):
        inflate(b"\xff" * 100, system_flag)


def test_a_compression_of_the_future_is_refused() -> None:
    with pytest.raises(DecompressionFailed, match="does not know"):
        inflate(b"any", 0x401)


@pytest.mark.parametrize(("system_flag", "package"), [(LZ4, "lz4"), (ZSTD, "zstandard")])
def test_a_package_that_is_not_there_is_named(system_flag: int, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.frame", None)

    with pytest.raises(MissingPackage, match=f"the package {package} is not installed"):
        inflate(b"any", system_flag)
