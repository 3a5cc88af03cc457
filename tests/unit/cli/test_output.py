"""What people see on their terminal."""

import pytest
import typer

from dittomq.cli.output import clock_time, human_age, human_bytes, printable, shown_body, table
from dittomq.cli.quantities import seconds


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() -> None:
    assert table([("NAME", "X"), ("a", "1"), ("longer", "")]) == ["NAME    X", "a       1", "longer"]


def test_control_characters_never_reach_the_terminal() -> None:
    assert printable("red\x1b[31m\nnext\x00\x9b") == "red\\x1b[31m\\nnext\\x00\\x9b"


def test_a_body_that_is_text_is_shown_as_text() -> None:
    assert shown_body('{"sum":"12 €"}'.encode()) == '{"sum":"12 €"}'


def test_a_body_that_is_not_text_is_shown_by_its_length_and_bytes() -> None:
    assert shown_body(bytes.fromhex("00ff10ab07")) == "<5 bytes, not text: 00 ff 10 ab 07>"


def test_a_long_body_that_is_not_text_shows_its_beginning_only() -> None:
    assert shown_body(b"\xff" * 1000) == f"<1,000 bytes, not text: {' '.join(['ff'] * 16)} …>"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1023 B"), (1_229, "1.2 KiB"), (3_328_599_654, "3.1 GiB"), (5 * 1024**4, "5.0 TiB")],
)
def test_sizes_are_given_in_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("age", "text"), [(-5, "0 s"), (0.4, "0 s"), (42, "42 s"), (600, "10 min"), (3 * 3600, "3 h"), (9 * 86_400, "9 d")]
)
def test_ages_are_given_in_one_unit(age: float, text: str) -> None:
    assert human_age(age) == text


def test_a_store_time_shows_its_milliseconds() -> None:
    assert clock_time(1_763_647_381_204, milliseconds=True).endswith(".204")


@pytest.mark.parametrize("moment_ms", [(1 << 63) - 1, -(1 << 63)])
def test_a_time_that_no_calendar_has_is_shown_as_a_number(moment_ms: int) -> None:
    assert clock_time(moment_ms, milliseconds=True) == f"{moment_ms:,} ms"


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("60s", 60.0), ("2m", 120.0), ("1h", 3600.0), ("1.5s", 1.5)])
def test_durations_are_read_with_their_unit(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["60", "s", "-1s", "1 s", "1d", ""])
def test_a_duration_without_a_known_unit_is_a_usage_error(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a duration"):
        seconds(text)
