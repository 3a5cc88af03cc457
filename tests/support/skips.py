"""A test that is skipped has its reason in pytest's summary; where SKIPS=fail is set, as in CI, it has failed for that reason.

Except for what is built on request only, because that takes longer than all tests together.
"""

import os
from collections.abc import Generator
from typing import Final, TypeVar

import pytest

ON_REQUEST: Final = "only on request:"
"""A reason that begins so remains one."""

_Report = TypeVar("_Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Of each step of each test."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Of a whole file that is skipped."""
    return _judged((yield))


def _judged(report: _Report) -> _Report:
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("SKIPS") == "fail":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        if reason.startswith(f"Skipped: {ON_REQUEST}"):
            return report
        report.outcome = "failed"
        report.longrepr = f"{reason}\nSKIPS=fail is set: nothing may be skipped here"
    return report
