"""Ranges of bytes as people type them."""

import re

_SHAPE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")


def bounds(text: str) -> tuple[int, int] | None:
    """The two numbers of "31,457,280..32,505,856"; None for anything else."""
    match = _SHAPE.fullmatch(text.replace(",", ""))
    return None if match is None else (int(match[1]), int(match[2]))
