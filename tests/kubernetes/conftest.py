"""The cluster of the folder's tests."""

import os
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.containers import images
from tests.support.kubernetes_cluster import KUBECTL, TAG
from tests.support.kubernetes_node import kubernetes_node
from tests.support.kubernetes_programs import programs

_BUILT: Final = "test"  # the user's engine may hold images of the version: those stay


@pytest.fixture(scope="session", autouse=True)
def cluster_of_the_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A node that is built here, or what TEST_KUBECTL reaches."""
    if KUBECTL in os.environ:
        yield
        return
    programs()
    audits = any(isinstance(item, pytest.Function) and "audit_image" in item.fixturenames for item in request.session.items)
    targets = ("broker", "audit") if audits else ("broker",)
    built = [images(_BUILT, *targets)[target] for target in targets]
    named = {image: image.replace(f":{_BUILT}", f":{TAG}") for image in built}
    with kubernetes_node(tmp_path_factory.mktemp("node"), named) as kubectl, pytest.MonkeyPatch.context() as patch:
        patch.setenv(KUBECTL, kubectl)
        yield


@pytest.fixture(scope="session")
def audit_image() -> None:
    """The cluster has it: it takes minutes to build, so without a test that runs the audit it has none."""
