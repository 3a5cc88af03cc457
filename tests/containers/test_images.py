"""The images that `make images` builds hold what they need, no more, and run with no right and on a root that is read-only."""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.containers import audit, container, engine, images, python_in
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

TAG: Final = "test"
MOST_BYTES: Final = 250_000_000
COMPILERS: Final = r"gcc|cc|c\+\+|g\+\+|clang|ld|as|make|javac"
NOT_INSIDE: Final = {
    "broker": re.compile(rf"(.*/)?bin/({COMPILERS}|sh|bash|dash|busybox|apt|apt-get|pip3?|perl|curl|wget)"),
    "audit": re.compile(rf"(.*/)?bin/({COMPILERS}|curl|wget)"),  # a shell starts Spark
}
DATA: Final = ("--tmpfs", "/data:size=64m,uid=10001,gid=10001,mode=700")
SMALL: Final = ("--set", "store.segment_bytes=1048576", "--set", "store.min_free_bytes=1048576")
READY: Final = "import urllib.request, sys; print(urllib.request.urlopen('http://127.0.0.1:%d/readyz', timeout=2).status)"


@pytest.fixture(scope="module")
def broker() -> str:
    return images(TAG)["broker"]


@pytest.fixture(scope="module")
def auditor() -> str:
    return images(TAG)["audit"]


@pytest.fixture(scope="module")
def cluster(broker: str) -> Iterator[tuple[str, str]]:
    """A nameserver and a broker without slaves, in containers that share one loopback device and have no other."""
    with container(broker, "nameserver", options=(*DATA, "--hostname", "localhost")) as nameserver:  # Spark looks its own name up
        settings = ("broker", "--set", 'node.nameservers=["127.0.0.1:9876"]', "--set", "advertise.default=127.0.0.1:10911", *SMALL)
        with container(broker, *settings, options=DATA, network=f"container:{nameserver}") as node:
            eventually(lambda: is_ready(nameserver, 9877), "the nameserver is ready")
            eventually(lambda: is_ready(node, 10914), "the broker is ready")
            dittomq(node, "ha status --wait in-sync")
            yield nameserver, node


def dittomq(node: str, command: str) -> None:
    """A command of the command line in its container."""
    python_in(node, "-m", "dittomq.cli", *command.split(), "--nameserver", "127.0.0.1:9876")


def is_ready(name: str, port: int) -> bool:
    """Whether its ops port says so; AssertionError with its log where it has ended."""
    running = engine("inspect", "--format", "{{.State.Running}}", name).stdout.strip() == "true"
    assert running, engine("logs", name).stderr[-2000:]
    return python_in(name, "-c", READY % port, check=False).stdout.strip() == "200"


def test_the_image_of_a_broker_is_small(broker: str) -> None:
    assert int(engine("image", "inspect", "--format", "{{.Size}}", broker).stdout) <= MOST_BYTES


@pytest.mark.parametrize("target", NOT_INSIDE)
def test_an_image_holds_nothing_to_build_or_download_with(target: str) -> None:
    image = images(TAG)[target]
    list_files = "import os; print('\\n'.join(os.path.join(at, name) for at, _, names in os.walk('/usr') for name in names))"
    command = ("run", "--rm", "--network", "none", "--entrypoint", "python3", image, "-c", list_files)
    inside = engine(*command).stdout.split()

    assert "/usr/bin/python3.11" in inside
    assert [path for path in inside if NOT_INSIDE[target].fullmatch(path)] == []


def test_a_service_runs_as_nobody_special(cluster: tuple[str, str]) -> None:
    for name in cluster:
        said = python_in(name, "-c", "import os; print(os.getuid(), os.getgid(), os.access('/opt/dittomq', os.W_OK))").stdout
        assert said.split() == ["10001", "10001", "False"]


def test_the_audit_image_finds_equal_copies_and_says_so_by_its_exit_code(cluster: tuple[str, str], auditor: str) -> None:
    nameserver, node = cluster
    for command in ("topic create orders --queues 1", "publish orders /opt/dittomq/app/dittomq/version.py"):
        dittomq(node, command)

    code, printed = audit(auditor, "127.0.0.1:9876", f"container:{nameserver}")

    assert (code, printed.split(maxsplit=1)[0]) == (0, "PASS"), printed


def test_a_container_that_is_stopped_ends_in_order(broker: str) -> None:
    with container(broker, "broker", *SMALL, options=DATA) as node:
        eventually(lambda: is_ready(node, 10914), f"{node} is ready")
        engine("stop", "--time", "20", node)

        assert engine("inspect", "--format", "{{.State.ExitCode}}", node).stdout.strip() == "0"
