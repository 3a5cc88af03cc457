"""Before Python 3.11.4 what an `except*` raises comes out in a group of its own, which no `except` for its class catches."""

import ast
from pathlib import Path

import pytest

from tests.support.tree import ROOT, files


@pytest.mark.parametrize("path", [path for path in files(".py") if path.parts[0] != "tests"], ids=str)
def test_nothing_is_raised_or_awaited_where_a_group_is_taken_apart(path: Path) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    handlers = [handler for node in ast.walk(tree) if isinstance(node, ast.TryStar) for handler in node.handlers]

    assert [node.lineno for handler in handlers for node in ast.walk(handler) if isinstance(node, ast.Raise | ast.Await)] == []
