"""The numbered lines of the demo, each with the time it took, and what ends it early."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

_WIDTH = 112


class DemoFailed(Exception):
    """Something that the demo proves did not hold."""


def demand(holds: object, what: str) -> None:
    """Go on only where it holds."""
    if not holds:
        raise DemoFailed(what)


class Step:
    """One line in the making, and the lines below it."""

    def __init__(self) -> None:
        self.title = ""
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """A line below the step's own."""
        self.notes.append(f"          {text}")


class Steps:
    """Counts steps and prints each when it is done; on a terminal it shows what is being done."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._number = 0

    @contextmanager
    def step(self, doing: str) -> Iterator[Step]:
        """A step; its lines are printed even when it fails, as far as they are known."""
        self._number += 1
        mark = f"[{self._number:2}/{self._total}] "
        step = Step()
        began = time.monotonic()
        try:
            with _spinner(f"{mark}{doing} …"):
                yield step
        except BaseException:
            self._print(step, mark, f"{doing}: FAILED", began)
            raise
        self._print(step, mark, doing, began)

    @staticmethod
    def _print(step: Step, mark: str, doing: str, began: float) -> None:
        took = f"{time.monotonic() - began:6.1f} s"
        print(f"{mark}{step.title or doing}".ljust(_WIDTH - len(took)) + took)
        for line in step.notes:
            print(line)
        sys.stdout.flush()


def _spinner(text: str) -> Any:
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)
