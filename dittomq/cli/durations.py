"""Durations as people type them."""

import re

import typer

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHAPE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def seconds(text: str, option: str | None = None) -> float:
    """The seconds of "500ms", "60s", "2m" or "1h", which `option` was given."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f'"{text}" is not a duration; write for example 500ms, 60s, 2m or 1h', param_hint=option)
    return float(match[1]) * _UNITS_S[match[2]]
