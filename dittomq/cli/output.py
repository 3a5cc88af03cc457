"""What commands print: results to stdout, hints and progress to stderr."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from dittomq.errors import DittoError

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))} | {9: "\t", 10: "\\n", 13: "\\r"}
_SHOWN_BYTES = 16


@dataclass(eq=False)
class OutputFailed(DittoError):
    """The result cannot be printed; what the command did is done."""

    problem: str

    def __str__(self) -> str:
        return f"what was to be printed cannot be written: {self.problem}"


def say(line: str = "") -> None:
    """One line of the result."""
    try:
        print(line)
    except BrokenPipeError:
        raise  # its reader has enough
    except OSError as error:
        raise OutputFailed(error.strerror or str(error)) from error


def flush() -> None:
    """What was said is printed when this returns."""
    try:
        if sys.stdout is not None:  # closed by the program that started this
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailed(error.strerror or str(error)) from error


def hint(line: str) -> None:
    """One line for the person at the terminal, not part of the result."""
    print(printable(line), file=sys.stderr)


def say_json(document: Mapping[str, object], *, schema: int = 1, stream: bool = False) -> None:
    """A whole document, or one line of a stream, with the version of its schema."""
    has_all_characters = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    say(json.dumps({"schema": schema} | dict(document), indent=None if stream else 2, ensure_ascii=not has_all_characters))


def table(rows: Sequence[Sequence[str]], *, indent: str = "") -> list[str]:
    """Rows as lines with aligned columns, two spaces between; the first row is the heading."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(max(map(len, rows)))]
    return [(indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip() for row in rows]


def printable(text: str) -> str:
    """The text on one line, with control characters shown instead of sent to the terminal."""
    return text.translate(_ESCAPES)


def shown_body(body: bytes) -> str:
    """A body for people: its text, or what it is when it is no text."""
    try:
        return printable(body.decode())
    except UnicodeDecodeError:
        more = " …" if len(body) > _SHOWN_BYTES else ""
        return f"<{len(body):,} bytes, not text: {body[:_SHOWN_BYTES].hex(' ')}{more}>"


def human_bytes(count: int) -> str:
    """A size in the largest unit that keeps it at or above one."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_age(seconds: float) -> str:
    """A duration in one unit; none is shorter than nothing, though a clock that is behind the one that began it may say so."""
    seconds = max(0.0, seconds)
    for limit, unit_s, unit in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def clock_time(moment_ms: int, *, milliseconds: bool = False) -> str:
    """Local time of day; the number itself where no calendar has such a day."""
    try:
        shown = f"{datetime.fromtimestamp(moment_ms / 1000, UTC).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{moment_ms:,} ms"
    return f"{shown}.{moment_ms % 1000:03d}" if milliseconds else shown


def clock_date(moment_ms: int) -> str:
    """Local day and month; empty where no calendar has such a day."""
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).astimezone().strftime("%d %b")
    except (ValueError, OverflowError, OSError):
        return ""


@contextmanager
def progress(what: str, total: int | None, *, beside_lines: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where that is a terminal, nothing elsewhere; the function given takes how much more was done.

    `beside_lines`: results are printed at the same time, and show by themselves how far it is where they go to a terminal too.
    """
    if not sys.stderr.isatty() or (beside_lines and sys.stdout.isatty()):
        yield lambda _more: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.update(task, advance=more)
