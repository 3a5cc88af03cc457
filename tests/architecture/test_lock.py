import re
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.tree import ROOT

_PIN = re.compile(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)

_CHECKERS = "deploy/k8s/tests/checkers.lock"  # of the group `manifests`, for an environment of its own
_OF_IMAGES = {  # the extras that each is made of
    "deploy/docker/broker.lock": ("services", "security", "kubernetes"),
    "deploy/docker/audit.lock": ("audit", "audit-jre"),
}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-build.lock", _CHECKERS, *_OF_IMAGES])
def test_a_lock_holds_versions_with_hashes_and_nothing_else(name: str) -> None:
    rest = _PIN.sub("", (ROOT / name).read_text(encoding="utf-8"))

    assert rest == ""


def test_the_lock_satisfies_what_pyproject_declares() -> None:
    locked = _locked("requirements.lock")

    unmet = [str(wanted) for wanted in _declared() if not wanted.specifier.contains(locked.get(canonicalize_name(wanted.name), "0"))]

    assert unmet == [], "run `make lock`"


@pytest.mark.parametrize("name", ["requirements-build.lock", *_OF_IMAGES])
def test_every_other_lock_is_a_part_of_the_lock(name: str) -> None:
    assert _locked(name).items() <= _locked("requirements.lock").items(), "run `make lock`"


@pytest.mark.parametrize("name", _OF_IMAGES)
def test_an_image_holds_what_its_extras_need_and_nothing_to_develop_with(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in (*_OF_IMAGES[name], "store"))]
    wanted = {canonicalize_name(Requirement(line).name) for lines in lists for line in lines} - {project["name"]}

    assert wanted <= _locked(name).keys(), "run `make lock`"
    assert not _locked(name).keys() & {"pytest", "mypy", "ruff", "grpcio-tools", "hypothesis"}
    assert ("pyspark" in _locked(name)) is ("audit" in _OF_IMAGES[name])


def _locked(name: str) -> dict[str, str]:
    return {canonicalize_name(package): version for package, version, _ in _PIN.findall((ROOT / name).read_text(encoding="utf-8"))}


def _declared() -> Iterator[Requirement]:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    lists = [pyproject["build-system"]["requires"], project["dependencies"], *project["optional-dependencies"].values()]
    lists += (group for name, group in pyproject["dependency-groups"].items() if name != "manifests")
    wanted = (Requirement(line) for lines in lists for line in lines if isinstance(line, str))
    return (requirement for requirement in wanted if requirement.name != project["name"])
