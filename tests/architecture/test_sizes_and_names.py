import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.tree import ROOT, files

MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 60
MAX_TEST_NAME = 80
DRAWERS = ("base", "common", "helper", "manager", "misc", "util")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("path", files(".py"), ids=str)
def test_a_module_fits_in_one_reading(path: Path) -> None:
    read = _read(path)

    assert read.lines <= MAX_MODULE_LINES
    assert list(read.too_long) == []


def test_test_names_are_short() -> None:
    names = [(path, name) for path in files(".py") if path.name.startswith("test_") for name in _read(path).tests]

    assert [f"{path}: {name}" for path, name in names if len(name) > MAX_TEST_NAME] == []


def test_no_module_imports_from_a_test_module() -> None:
    imported = [(path, module) for path in files(".py") for module in _read(path).imports]

    assert [f"{path}: {module}" for path, module in imported if module.startswith("tests.") and ".test_" in module] == []


def test_nothing_is_named_after_a_drawer() -> None:
    named = [str(path) for path in files(".py") for part in path.with_suffix("").parts if _is_drawer(part)]
    classes = [f"{path}: {name}" for path in files(".py") for name in _read(path).classes if _is_drawer(re.sub("([A-Z])", r"_\1", name))]

    assert named + classes == []


def _is_drawer(name: str) -> bool:
    return any(word.removesuffix("s") in DRAWERS for word in name.lower().split("_"))


class _Module(NamedTuple):
    """What these tests ask of a module, so that none of its tree is kept. `too_long`: its long functions, each in a sentence."""

    lines: int
    too_long: tuple[str, ...]
    classes: tuple[str, ...]
    tests: tuple[str, ...]
    imports: tuple[str, ...]


@functools.cache
def _read(path: Path) -> _Module:
    text = (ROOT / path).read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    functions = [node for node in nodes if isinstance(node, _Function)]
    return _Module(
        len(text.splitlines()),
        tuple(f"line {each.lineno}: {each.name} has {_lines(each)} lines" for each in functions if _lines(each) > MAX_FUNCTION_LINES),
        tuple(node.name for node in nodes if isinstance(node, ast.ClassDef)),
        tuple(each.name for each in functions if each.name.startswith("test_")),
        tuple(module for node in nodes for module in _imported(node)),
    )


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        yield node.module or ""
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def _lines(function: _Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1
