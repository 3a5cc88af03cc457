"""A test that is skipped has its reason in pytest's summary; where SKIPS=fail is set, as in CI, it has failed for that reason."""

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

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
    if report.skipped and not hasattr(report, "wasxfail") and nothing_may_be_skipped():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"{reason}\nSKIPS=fail is set: nothing may be skipped here"
    return report


def nothing_may_be_skipped() -> bool:
    """As in CI: so what takes long to build is built there, too."""
    return os.environ.get("SKIPS") == "fail"
