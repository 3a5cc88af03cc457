"""Where two long sequences differ: pytest's own explanation compares each line of one with each of the other, and does not end."""

from collections.abc import Iterable
from itertools import zip_longest

_SHOWN = 600


def first_difference(found: Iterable[object], expected: Iterable[object]) -> str:
    """Which item is the first that is not as expected, and both; "" when all are."""
    missing = "nothing"
    for index, (one, other) in enumerate(zip_longest(found, expected, fillvalue=missing)):
        if one != other:
            return f"item {index} is {str(one)[:_SHOWN]}, not {str(other)[:_SHOWN]}"
    return ""
