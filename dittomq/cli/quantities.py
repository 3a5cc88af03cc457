"""Durations and ranges of bytes as people type them."""

import re
from datetime import UTC, datetime, timedelta

import typer

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_RANGE = re.compile(r"([0-9]{1,18})\.\.([0-9]{1,18})")


def seconds(text: str, option: str | None = None) -> float:
    """The seconds of "500ms", "60s", "2m" or "1h", which `option` was given."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f'"{text}" is not a duration; write for example 500ms, 60s, 2m or 1h', param_hint=option)
    return float(match[1]) * _UNITS_S[match[2]]


def moment_ms(text: str, option: str | None = None) -> int:
    """The time of "2026-12-24T18:00:00Z", which `option` was given, in ms since 1970; without a zone it is the machine's."""
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1_000)
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter(f'"{text}" is not a time; write for example 2026-12-24T18:00:00Z', param_hint=option) from error


def past_or_moment(text: str, option: str | None = None) -> datetime:
    """The time of "2026-12-24T18:00:00Z", or that of "1h" ago."""
    if _DURATION.fullmatch(text):
        return datetime.now(UTC) - timedelta(seconds=seconds(text, option))
    return datetime.fromtimestamp(moment_ms(text, option) / 1_000, UTC)


def bounds(text: str) -> tuple[int, int] | None:
    """The two numbers of "31,457,280..32,505,856"; None for anything else."""
    match = _RANGE.fullmatch(text.replace(",", ""))
    return None if match is None else (int(match[1]), int(match[2]))
