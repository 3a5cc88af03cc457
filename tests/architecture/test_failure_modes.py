"""Every failure mode that is written down has its test, and so has whatever else a page names one for."""

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
    "R10",
    *(f"M{number}" for number in (1, 3, 4, 5)),
    "L3",
    "L4",
]
# Those that real processes must have shown.
_DEMANDED_OF_PROCESSES = [
    *(f"C{number}" for number in range(1, 13)),
    *(f"D{number}" for number in (1, 2, 3, 4, 5, 6, 7, 15)),
    *(f"N{number}" for number in range(1, 15) if number != 4),
    *(f"R{number}" for number in range(1, 10) if number != 2),
    "L3",
    "L4",
]
_DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)


@pytest.mark.parametrize(
    "page", ["docs/failure-modes.md", "docs/from-rocketmq.md", "docs/security.md", "tests/unit/services/nameserver/README.md"]
)
def test_every_test_that_a_page_names_exists(page: str) -> None:
    named = _NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    defined = {path.name for path in files(".txt") if path.parts[:2] == ("tests", "transcripts")} | _tests_in("tests")

    assert named
    assert [name for name in named if name not in defined] == []


def test_every_failure_mode_names_a_test() -> None:
    assert _rows()
    assert [row for row in _rows() if not _NAMED.search(_tests_of(row))] == []


def test_every_fault_of_the_catalogue_has_a_row() -> None:
    told = {each for row in _rows() for each in _ids_of(row)}

    assert [each for each in _DEMANDED if each not in told] == []


def test_faults_of_processes_and_networks_are_acted_by_real_ones() -> None:
    real = _tests_in("tests", "integration")
    acted = {each for row in _rows() if real & set(_NAMED.findall(_tests_of(row))) for each in _ids_of(row)}

    assert [each for each in _DEMANDED_OF_PROCESSES if each not in acted] == []


def _rows() -> list[str]:
    lines = (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| id |")]


def _ids_of(row: str) -> list[str]:
    return row.split("|")[1].strip().split(", ")


def _tests_of(row: str) -> str:
    return row.rpartition(" | ")[2]


def _tests_in(*folder: str) -> set[str]:
    paths = [path for path in files(".py") if path.parts[: len(folder)] == folder]
    return {name for path in paths for name in _DEFINED.findall((ROOT / path).read_text(encoding="utf-8"))}
