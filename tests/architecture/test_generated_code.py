import shutil
from pathlib import Path

import pytest

from tests.support.tree import ROOT
from tools.genproto import generate


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree that holds nothing but the .proto files."""
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    (tmp_path / "dittomq").mkdir()
    return tmp_path


def test_the_generated_code_is_what_the_proto_files_say(copy: Path) -> None:
    generate(copy)

    assert _modules(copy) == _modules(ROOT), "run `make proto`"


def test_generating_again_touches_nothing(copy: Path) -> None:
    generate(copy)
    before = (copy / "dittomq" / "_pb").stat().st_ino

    generate(copy)

    assert (copy / "dittomq" / "_pb").stat().st_ino == before


def test_a_proto_file_that_is_wrong_leaves_the_old_code_in_place(copy: Path) -> None:
    generate(copy)
    before = _modules(copy)
    (copy / "proto" / "wrong.proto").write_text('syntax = "proto3"; message Unfinished {', encoding="utf-8")

    with pytest.raises(RuntimeError, match="protoc refused"):
        generate(copy)

    assert _modules(copy) == before


def _modules(root: Path) -> dict[str, str]:
    folder = root / "dittomq" / "_pb"
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.py*") if path.suffix != ".pyc"}
