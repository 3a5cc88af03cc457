"""Write docs/log-events.md: each event that nodes log, as the code logs it. Run by `make docs`."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "log-events.md"

_LEVELS = ("info", "warning", "error")
_Place = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_INTRODUCTION = """# Log events

Written by `make docs` from the code: do not edit.

Nodes and nameservers write them to standard error, a JSON object a line: `event` says what happened, `level` how bad that is,
`timestamp` when, and the fields below to what (`…`: more that depend on the case). The last column says what the place that logs it
is there for. What a failure looks like and leads to stands in [failure-modes.md](failure-modes.md).
"""


@dataclass(frozen=True, slots=True)
class LogCall:
    """One place that logs `event`; `during` is what that place does."""

    event: str
    level: str
    fields: tuple[str, ...]
    module: str
    during: str


def document() -> str:
    """The whole page, by event."""
    lines = [_INTRODUCTION, "| event | level | fields | logged by | there for |", "|---|---|---|---|---|"]
    for call in sorted(calls(), key=lambda each: (each.event, each.module)):
        fields = ", ".join(f"`{name}`" for name in call.fields)
        lines.append(f"| `{call.event}` | {call.level} | {fields} | `{call.module}` | {call.during} |")
    return "\n".join(lines) + "\n"


def calls() -> Iterator[LogCall]:
    """All that use structlog. Raises TypeError for a call whose event is no literal name: it could not be listed."""
    for package in ("dittomq", "services"):
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if "log = structlog.get_logger()" in source:
                module = ast.parse(source)
                yield from _calls(module, str(path.relative_to(ROOT)), [module])


def _calls(node: ast.AST, path: str, around: list[_Place]) -> Iterator[LogCall]:
    for child in ast.iter_child_nodes(node):
        within = [*around, child] if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else around
        yield from _calls(child, path, within)
        match child:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[event, *_]) if level in _LEVELS:
                if not isinstance(event, ast.Constant):
                    raise TypeError(f"{path}:{child.lineno} logs an event whose name is not written there")
                fields = tuple(sorted(keyword.arg or "…" for keyword in child.keywords))
                yield LogCall(str(event.value), level, fields, path, _purpose(around))


def _purpose(around: list[_Place]) -> str:
    """The first sentence of the innermost docstring."""
    text = next(filter(None, (ast.get_docstring(place) for place in reversed(around))), "")
    sentence = " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return sentence.replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
