"""Ctrl-C: how a command ends then, and what its user has to know."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

INTERRUPTED: Final = 130
"""As a shell says it of what SIGINT ended."""


@contextmanager
def report_interrupt(sentence: str) -> Iterator[None]:
    """Say so when Ctrl-C ends the block, and go on ending."""
    try:
        yield
    except KeyboardInterrupt:
        print(sentence, file=sys.stderr)
        raise
