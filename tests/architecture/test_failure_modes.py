"""Every failure mode that is written down has its test, and so has every statement about RocketMQ that names one."""

import re

import pytest

from tests.support.tree import ROOT, files

_NAMED = re.compile(r"`(test_\w+|\w+\.txt)`")
# Crashes, faults of disks and of networks, changes of roles, and long runs, by the ids of the catalogue.
_DEMANDED = [
    *(f"C{number}" for number in range(1, 13)),
    *(f"D{number}" for number in range(1, 17)),
    *(f"N{number}" for number in range(1, 15) if number != 4),
    *(f"R{number}" for number in range(1, 10)),
    "L3",
    "L4",
]
_DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)


@pytest.mark.parametrize("page", ["failure-modes.md", "from-rocketmq.md"])
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = _NAMED.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    defined = {path.name for path in files(".txt") if path.parts[:2] == ("tests", "transcripts")}
    defined |= {
        name for path in files(".py") if path.parts[0] == "tests" for name in _DEFINED.findall((ROOT / path).read_text(encoding="utf-8"))
    }

    assert named
    assert [name for name in named if name not in defined] == []


def test_every_failure_mode_names_a_test() -> None:
    rows = [line for line in (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    told = [row for row in rows if not row.startswith("| id |")]

    assert told
    assert [row for row in told if not _NAMED.search(row.rpartition(" | ")[2])] == []


def test_every_fault_of_the_catalogue_has_a_row() -> None:
    rows = [line for line in (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    told = {each for row in rows for each in row.split("|")[1].strip().split(", ")}

    assert [each for each in _DEMANDED if each not in told] == []
