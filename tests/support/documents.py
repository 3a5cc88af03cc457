"""What is written in the project's documents: commands with what they print, and code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.tree import ROOT

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(r"\d[\d,.:]*( [KMGT]?i?B\b| (?:s|min|h)\b)?")
_LOCAL_CLUSTER = re.compile(r"\blocal-[0-9a-f]{4}\b")
_LEFT_OUT = "…"


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a document shows it, and the lines that it says are printed. A line `…` stands for any lines."""

    command: str
    printed: tuple[str, ...]


def blocks(path: Path | str, language: str) -> list[str]:
    """Every block of that language, in order."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return [body for kind, body in _BLOCK.findall(text) if kind == language]


def commands(path: Path | str) -> list[Shown]:
    """Every command of the console blocks, in order, a comment behind it left out."""
    return [shown for block in blocks(path, "console") for shown in _commands(block)]


def same_shape(written: tuple[str, ...], printed: str) -> bool:
    """Whether the lines printed are those written, figures and widths aside."""
    pattern = "".join(r"(.*\n)*?" if line.strip() == _LEFT_OUT else re.escape(shape(line)) + r"\n" for line in written)
    return re.fullmatch(pattern, "".join(f"{shape(line)}\n" for line in printed.rstrip().splitlines())) is not None


def shape(line: str) -> str:
    """A line without what differs from run to run: figures, sizes and times with their units, widths, the name of a local cluster."""
    return re.sub(r"-+", "-", re.sub(r"\s+", " ", _FIGURE.sub("0", _LOCAL_CLUSTER.sub("local", line)))).strip()


def _commands(block: str) -> Iterator[Shown]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *printed = part.rstrip().splitlines()
        yield Shown(re.sub(r"\s+# .*$", "", command), tuple(printed))
