"""Stores that running RocketMQ brokers left, each unpacked once, with RocketMQ's own reading of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import vectors

Line = dict[str, Any]

STORES = [f"{variant}/{role}" for variant in vectors.VARIANTS for role in ("master", "slave")]
# RocketMQ takes these records for whole although their last bytes never came: by store, where they begin.
TORN = {"diverged-5.3.3/slave": 1_318_151, "killed-4.9.7/slave": 2_358_432, "killed-5.3.3/slave": 1_244_351}


@dataclass(frozen=True, slots=True)
class Vector:
    """One store. `records` are RocketMQ's lines for its log, `opened` those of its whole store after a start."""

    name: str
    folder: Path
    records: list[Line]
    opened: list[Line]

    @property
    def torn(self) -> int | None:
        """Where a record begins that RocketMQ keeps and that is torn; None for none."""
        return TORN.get(self.name)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    found: dict[str, Path] = {}

    def variant(name: str) -> Path:
        if name not in found:
            found[name] = vectors.unpack(name, tmp_path_factory.mktemp(name))
        return found[name]

    return variant


@pytest.fixture(params=STORES)
def vector(request: pytest.FixtureRequest, unpacked: Callable[[str], Path]) -> Vector:
    """A store to be read; who changes it takes a copy."""
    variant, role = request.param.split("/")
    own = f"records-{role}.jsonl.xz"  # there only where the slave's differs
    records = vectors.lines(variant, own if vectors.has(variant, own) else "records-master.jsonl.xz")
    return Vector(request.param, unpacked(variant) / role, records, vectors.lines(variant, f"opened-{role}.jsonl.xz"))
