"""The overlay dev on a real cluster: what a client was told is stored, whatever becomes of the master's pod."""

import json
from collections.abc import Iterator

import pytest
import yaml

from tests.support.kubernetes_cluster import (
    IMAGE,
    NAMESERVERS,
    OVERLAYS,
    applied,
    define_foreign_objects,
    holder,
    in_namespace,
    job,
    kubectl,
    leads,
    load,
    rendered,
    rolled_out,
)
from tests.support.tree import ROOT
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

REACHES = """
import socket, time
deadline = time.monotonic() + 20
while True:  # a network plugin admits a new pod a moment after it has started
    try:
        socket.create_connection(("{host}", 9876), 5)
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with applied("dev"):
        yield


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A namespace without any object, as strict as that of the overlays."""
    name = "dittomq-elsewhere"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
    kubectl(
        "apply",
        "--filename",
        "-",
        stdin=json.dumps({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": labels}}),
    )
    yield name
    kubectl("delete", "namespace", name)


@pytest.mark.parametrize("overlay", [*OVERLAYS, "examples"])
def test_the_api_takes_every_object_as_it_is_written(elsewhere: str, overlay: str) -> None:
    define_foreign_objects()
    examples = "\n---\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "deploy" / "k8s" / "examples").iterdir())
    objects = list(yaml.safe_load_all(examples if overlay == "examples" else rendered(overlay)))
    moved = [each | {"metadata": each["metadata"] | {"namespace": elsewhere}} for each in objects if each["kind"] != "Namespace"]
    strictly = ("--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename", "-")
    made = kubectl("create", *strictly, stdin=yaml.safe_dump_all(moved))

    assert len(made.splitlines()) == len(moved)


@pytest.mark.tier("test")
def test_services_lead_to_the_master_and_to_the_slaves(cluster: None) -> None:
    pods = {f"dittomq-a-{each}" for each in range(3)}
    eventually(lambda: leads("dittomq-rw-a") == {pod_of(holder())}, "the one to the master")
    eventually(lambda: leads("dittomq-ro-a") == pods - {pod_of(holder())}, "the other one to the slaves")


@pytest.mark.parametrize("reached", [True, False], ids=["client", "stranger"])
def test_only_a_pod_that_calls_itself_a_client_reaches_a_nameserver(cluster: None, reached: bool) -> None:
    name, host = f"reaches-{str(reached).lower()}", NAMESERVERS.partition(":")[0]
    look = REACHES.format(host=host)
    labels = f"--labels=dittomq/client={str(reached).lower()}"
    kubectl("run", name, labels, "--image", IMAGE, "--restart", "Never", "--command", "--", "python3", "-c", look)
    try:
        kubectl("wait", f"pod/{name}", "--for", f"jsonpath={{.status.phase}}={'Succeeded' if reached else 'Failed'}", "--timeout", "60s")
        assert "gaierror" not in kubectl("logs", name)  # it found the name, and was cut off there
    finally:
        kubectl("delete", "pod", name)


def test_the_audit_job_passes_and_keeps_its_report(cluster: None, audit_image: None) -> None:
    in_namespace("create", "job", "audit-now", "--from", "cronjob/dittomq-audit")
    in_namespace("wait", "job/audit-now", "--for", "condition=Complete", "--timeout", "180s", timeout_s=200)

    assert any(line.startswith("PASS") for line in in_namespace("logs", "job/audit-now").splitlines())


@pytest.mark.tier("test")
def test_a_masters_pod_that_is_killed_under_load_takes_nothing_with_it(cluster: None) -> None:
    with load("killed", 30) as running:
        eventually(lambda: running.publishes, "the first receipt")
        before = holder()
        in_namespace("delete", "pod", pod_of(before), "--grace-period=0", "--force")
        eventually(lambda: holder() != before, "the Lease names another master")
        eventually(lambda: leads("dittomq-rw-a") == {pod_of(holder())}, "the service leads to it")

        found = running.result(within_s=180)

    print(found)  # how long nobody was told anything, for the curious
    assert (found["lost"], found["twice"], found["refusals"]) == (0, 0, []), found
    assert found["longest_s"] <= 5, found


def test_a_rolling_restart_under_load_loses_nothing_and_holds_nobody_up(cluster: None) -> None:
    rolled_out()
    with load("rolled", 80) as running:
        eventually(lambda: running.publishes, "the first receipt")
        in_namespace("rollout", "restart", "statefulset/dittomq-a")
        rolled_out()

        found = running.result(within_s=240)

    print(found)  # how long nobody was told anything, for the curious
    assert (found["lost"], found["twice"], found["refusals"]) == (0, 0, []), found
    assert found["longest_s"] <= 2, found  # 1 s on a machine that has nothing else to do


def test_a_slave_is_added_and_removed_under_load(cluster: None) -> None:
    """The steps of docs/operations.md."""
    rolled_out()
    with load("scaled", 100) as running:
        eventually(lambda: running.publishes, "the first receipt")
        expect_slaves(3)
        in_namespace("scale", "statefulset/dittomq-a", "--replicas=4")
        rolled_out()
        assert "in sync 4 of 4" in status()
        in_namespace("scale", "statefulset/dittomq-a", "--replicas=3")
        expect_slaves(2)
        eventually(lambda: "in sync 3 of 3" in status(), "the group is as it was")

        found = running.result(within_s=240)

    assert (found["lost"], found["twice"], found["refusals"]) == (0, 0, []), found
    assert in_namespace("get", "pvc", "data-dittomq-a-3", "-o", "name") == "persistentvolumeclaim/data-dittomq-a-3\n"


def test_a_group_that_lost_all_disks_is_restored_from_a_backup(cluster: None) -> None:
    """The steps of docs/operations.md. It is the last test of the cluster: what was published after the backup is gone."""
    with load("kept", 5) as running:
        kept = running.result(within_s=120)["acknowledged"]
    in_namespace("scale", "statefulset/dittomq-a", "--replicas=2")
    in_namespace("wait", "pod/dittomq-a-2", "--for=delete", "--timeout=60s")
    job("backup.yaml", "dittomq-backup")

    in_namespace("scale", "statefulset/dittomq-a", "--replicas=0")
    in_namespace("wait", "pod/dittomq-a-0", "pod/dittomq-a-1", "--for=delete", "--timeout=60s")
    in_namespace("delete", "pvc", *(f"data-dittomq-a-{each}" for each in range(3)))

    job("restore.yaml", "dittomq-restore")
    in_namespace("scale", "statefulset/dittomq-a", "--replicas=3")
    eventually(lambda: "a/0" in ha("failover", "a/0", "--allow-data-loss"), "a/0 stands for election")
    rolled_out()
    with load("kept", 0) as counting:
        assert counting.result(within_s=120) == {"found": kept}


def pod_of(node: str) -> str:
    """The pod of the node "a/0"."""
    return f"dittomq-{node.replace('/', '-')}"


def expect_slaves(number: int) -> None:
    """Have the group expect so many, and wait until all nodes do."""
    in_namespace("set", "env", "statefulset/dittomq-a", f"DITTOMQ_REPLICATION__REPLICAS_EXPECTED={number}")
    rolled_out()


def status() -> str:
    """What `ha status` prints; empty while that fails."""
    return ha("status")


def ha(*arguments: str) -> str:
    """What `dittomq ha …` prints."""
    command = ("python3", "-m", "dittomq.cli", "ha", *arguments, "--nameserver", NAMESERVERS)
    return in_namespace("exec", "dittomq-a-0", "--", *command, check=False)
