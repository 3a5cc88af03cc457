"""The cluster of the folder's tests."""

import os
from collections.abc import Iterator

import pytest

from tests.support.containers import images
from tests.support.kubernetes_cluster import KUBECTL, TAG
from tests.support.kubernetes_node import kubernetes_node
from tests.support.kubernetes_programs import programs


@pytest.fixture(scope="session", autouse=True)
def cluster_of_the_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A node that is built here, or what TEST_KUBECTL reaches."""
    if KUBECTL in os.environ:
        yield
        return
    programs()
    with kubernetes_node(tmp_path_factory.mktemp("node"), images(TAG).values()) as kubectl, pytest.MonkeyPatch.context() as patch:
        patch.setenv(KUBECTL, kubectl)
        yield
