"""Every failure mode that is written down has its test, and so has every statement about RocketMQ that names one."""

import re

import pytest

from tests.support.tree import ROOT, files

_NAMED = re.compile(r"`(test_\w+|\w+\.txt)`")
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
