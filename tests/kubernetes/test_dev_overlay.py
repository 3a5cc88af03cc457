"""The overlay dev on a real cluster: what a client was told is stored, whatever becomes of the master's pod."""

from collections.abc import Iterator

import pytest

from tests.support.kubernetes_cluster import applied, holder, in_namespace, kubectl, load, rendered
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with applied("dev"):
        yield


@pytest.mark.parametrize("overlay", ["dev"])
def test_the_api_takes_every_object_as_it_is_written(cluster: None, overlay: str) -> None:
    kubectl("apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "--filename", "-", stdin=rendered(overlay))


def test_the_audit_job_passes_and_keeps_its_report(cluster: None) -> None:
    in_namespace("create", "job", "audit-now", "--from", "cronjob/dittomq-audit")
    in_namespace("wait", "job/audit-now", "--for", "condition=Complete", "--timeout", "180s", timeout_s=200)

    assert any(line.startswith("PASS") for line in in_namespace("logs", "job/audit-now").splitlines())


def test_a_masters_pod_that_is_killed_under_load_takes_nothing_with_it(cluster: None) -> None:
    with load("killed", 30) as running:
        eventually(lambda: running.publishes, "the first receipt")
        before = holder()
        in_namespace("delete", "pod", f"dittomq-{before.replace('/', '-')}", "--grace-period=0", "--force")
        eventually(lambda: holder() != before, "the Lease names another master")

        found = running.result(within_s=180)

    print(found)  # how long nobody was told anything, for the curious
    assert (found["lost"], found["twice"], found["refusals"]) == (0, 0, []), found
    assert found["longest_s"] <= 5, found


def test_a_rolling_restart_under_load_loses_nothing_and_holds_nobody_up(cluster: None) -> None:
    in_namespace("rollout", "status", "statefulset/dittomq-a", "--timeout", "180s", timeout_s=200)
    with load("rolled", 110) as running:
        eventually(lambda: running.publishes, "the first receipt")
        in_namespace("rollout", "restart", "statefulset/dittomq-a")
        in_namespace("rollout", "status", "statefulset/dittomq-a", "--timeout", "180s", timeout_s=200)

        found = running.result(within_s=240)

    print(found)  # how long nobody was told anything, for the curious
    assert (found["lost"], found["twice"], found["refusals"]) == (0, 0, []), found
    assert found["longest_s"] <= 5, found
