import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.tree import ROOT, files

MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 60
MAX_TEST_NAME = 80
DRAWERS = ("base", "common", "helper", "manager", "misc", "util")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("path", files(".py"), ids=str)
def test_a_module_fits_in_one_reading(path: Path) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")

    assert len(text.splitlines()) <= MAX_MODULE_LINES
    assert [f"line {function.lineno}: {function.name} has {_lines(function)} lines" for function in _long_functions(text)] == []


def test_test_names_are_short() -> None:
    names = [(path, name) for path in files(".py") if path.name.startswith("test_") for name in _test_names(path)]

    assert [f"{path}: {name}" for path, name in names if len(name) > MAX_TEST_NAME] == []


def test_no_module_imports_from_a_test_module() -> None:
    imported = [(path, module) for path in files(".py") for module in _imported_modules(path)]

    assert [f"{path}: {module}" for path, module in imported if module.startswith("tests.") and ".test_" in module] == []


def test_nothing_is_named_after_a_drawer() -> None:
    named = [str(path) for path in files(".py") for part in path.with_suffix("").parts if _is_drawer(part)]
    classes = [f"{path}: {name}" for path in files(".py") for name in _class_names(path) if _is_drawer(re.sub("([A-Z])", r"_\1", name))]

    assert named + classes == []


def _is_drawer(name: str) -> bool:
    return any(word.removesuffix("s") in DRAWERS for word in name.lower().split("_"))


def _class_names(path: Path) -> Iterator[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _test_names(path: Path) -> Iterator[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return (node.name for node in ast.walk(tree) if isinstance(node, _Function) and node.name.startswith("test_"))


def _long_functions(text: str) -> Iterator[_Function]:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, _Function))
    return (function for function in functions if _lines(function) > MAX_FUNCTION_LINES)


def _lines(function: _Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1
