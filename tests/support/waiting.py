"""Waiting for something that other processes bring about: looks again and again, until it is there or the deadline has passed."""

import time
from collections.abc import Callable
from typing import TypeVar

from dittomq.errors import DittoError

T = TypeVar("T")

PATIENCE_S = 60.0
"""Ends a hang and promises nothing: also a machine whose cores and disk are busy with others has done by then what is waited for."""

_LOOK_EVERY_S = 0.02


def eventually(look: Callable[[], T], what: str, *, within_s: float = PATIENCE_S) -> T:
    """What `look` returns once that is truthy; AssertionError with `what` and the last look when it never is.

    A look that raises an error of ours, for instance because a process is not up yet, has seen nothing.
    """
    deadline = time.monotonic() + within_s
    while True:
        seen: T | DittoError
        try:
            seen = look()
        except DittoError as error:
            seen = error
        else:
            if seen:
                return seen
        assert time.monotonic() < deadline, f"after {within_s:g} s still not: {what}; seen last: {seen!r}"
        time.sleep(_LOOK_EVERY_S)


def seconds_for(act: Callable[[], object]) -> float:
    """How long `act` took."""
    began = time.monotonic()
    act()
    return time.monotonic() - began
