"""The demo believes an audit only when it names exactly the byte that was flipped."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dittomq.cli.demo.auditing import Audit, Flipped, flip_a_byte
from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset, QueueOffset

MESSAGE = StoredMessage("flights", 5, QueueOffset(100), PhysicalOffset(20), 24, b"1,7,2013", (), "", {}, 0, 0, 0)
FLIPPED = Flipped("a/2", MESSAGE, 32)
FINDING: dict[str, Any] = {
    "node": "a/2",
    "first_offset": 32,
    "differing_bytes": 1,
    "message": {"topic": "flights", "queue": 5, "queue_offset": 100},
}
GROUP: dict[str, Any] = {
    "broker": "a",
    "copies": [{}, {}, {}],
    "compared_bytes": 1000,
    "differing_bytes": 0,
    "not_checked_bytes": 0,
    "records": {"damaged": 0},
    "verdict": "PASS",
    "findings": [],
}


def audit_with(*findings: dict[str, Any]) -> Audit:
    return Audit(3, {"groups": [GROUP | {"findings": list(findings)}]})


def test_the_very_byte_is_believed() -> None:
    assert audit_with(FINDING).finds(FLIPPED)


@pytest.mark.parametrize(
    ("field", "value"),
    [("node", "a/1"), ("node", None), ("first_offset", 33), ("differing_bytes", 2), ("message", None)],
)
def test_another_node_or_byte_is_not_believed(field: str, value: object) -> None:
    assert not audit_with(FINDING | {field: value}).finds(FLIPPED)


def test_another_message_is_not_believed() -> None:
    finding = deepcopy(FINDING)
    finding["message"]["queue_offset"] = 101

    assert not audit_with(finding).finds(FLIPPED)


def test_a_second_finding_is_not_believed() -> None:
    assert not audit_with(FINDING, FINDING | {"node": "a/1"}).finds(FLIPPED)


def test_no_finding_is_not_believed() -> None:
    assert not audit_with().finds(FLIPPED)


def test_a_pass_counts_only_when_all_copies_were_compared() -> None:
    assert Audit(0, {"groups": [GROUP]}).passes(copies=3)
    assert not Audit(16, {"groups": [GROUP]}).passes(copies=3)
    assert not Audit(0, {"groups": [GROUP | {"copies": [{}, {}]}]}).passes(copies=3)
    assert not Audit(0, {"groups": [GROUP | {"compared_bytes": 0}]}).passes(copies=3)
    assert not Audit(0, {"groups": []}).passes(copies=3)


def test_exactly_one_bit_of_the_body_is_flipped(tmp_path: Path) -> None:
    segment = tmp_path / "commitlog" / "00000000000000000000"
    segment.parent.mkdir()
    before = b"x" * 28 + MESSAGE.body + b"y" * 100
    segment.write_bytes(before)

    flipped = flip_a_byte(tmp_path, "a/2", MESSAGE)

    after = segment.read_bytes()
    changed = [at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    assert changed == [flipped.position] == [32]
    assert before[32] ^ after[32] == 1
