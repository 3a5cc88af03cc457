"""One store of ours for all tests of this folder, and the releases of RocketMQ that open copies of it."""

import pytest

from tests.interop.release import VERSIONS, Release, release
from tests.interop.written_store import Written, write


@pytest.fixture(scope="session", params=VERSIONS)
def rocketmq(request: pytest.FixtureRequest) -> Release:
    return release(request.param)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    release(VERSIONS[0])  # where there is no RocketMQ, nothing is written
    return write(tmp_path_factory.mktemp("written"))
