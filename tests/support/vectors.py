"""Stores written by running RocketMQ brokers: `tests/rocketmq/vectors`, whose README says what each file is."""

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

from tests.support.tree import ROOT

VARIANTS = [
    "controller-5.3.3", "crc-5.3.3", "diverged-5.3.3", "ha-4.9.7", "ha-5.3.3", "ipv6-5.3.3",
    "killed-4.9.7", "killed-5.3.3", "plain-4.9.7", "plain-5.3.3", "queues-5.3.3",
]  # fmt: skip
_FOLDER = ROOT / "tests" / "rocketmq" / "vectors"


def folder() -> Path:
    """Where they lie, a folder for each variant."""
    return _FOLDER


def unpack(variant: str, to: Path) -> Path:
    """A variant's stores, `master` and `slave`, without the large timer wheel."""
    with tarfile.open(folder() / variant / "store.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # not in Python 3.11.2
        archive.extractall(to, [member for member in archive.getmembers() if "timerwheel" not in member.name])
    return to


def raw(variant: str, name: str) -> bytes:
    """A file of a variant, unpacked."""
    return lzma.decompress((folder() / variant / name).read_bytes())


def lines(variant: str, name: str) -> list[dict[str, Any]]:
    """RocketMQ's own reading: one value a line."""
    return [json.loads(line) for line in raw(variant, name).decode().split("\n") if line]


def has(variant: str, name: str) -> bool:
    """Whether a variant has such a file; the slave's only where it differs."""
    return (folder() / variant / name).exists()
