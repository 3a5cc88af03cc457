"""What the overlays render to: settings that brokers take, metrics that are there, pods without rights, selectors that find their pods."""

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dittomq.coordination.kubernetes import ROLE_LABEL
from dittomq.settings import load
from services.role_supervisor import StartConfig
from tests.support.kubernetes_cluster import OVERLAYS, rendered
from tests.support.tree import ROOT, files

MONITORING: Final = ROOT / "deploy" / "k8s" / "components" / "monitoring"
ALERTS: Final = MONITORING / "alerts.yaml"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
_NAMED: Final = re.compile(r'"(dittomq_[a-z_]+)"')
_SUFFIXES: Final = re.compile(r"_(bucket|count|sum)$")

pytestmark = pytest.mark.parametrize("overlay", OVERLAYS)


@functools.cache
def everything(overlay: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(rendered(overlay)))


def objects(overlay: str, *kinds: str) -> list[dict[str, Any]]:
    return [each for each in everything(overlay) if each["kind"] in kinds]


def pods(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The kind and the pod template of everything that makes pods."""
    for each in objects(overlay, "StatefulSet", "CronJob"):
        spec = each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each["spec"]
        yield each["kind"], spec["template"]


def groups(overlay: str) -> list[dict[str, Any]]:
    return [each for each in objects(overlay, "StatefulSet") if "dittomq/broker" in each["metadata"]["labels"]]


def environment(overlay: str, group: dict[str, Any]) -> dict[str, str]:
    """The variables of the group's first pod."""
    [container] = group["spec"]["template"]["spec"]["containers"]
    maps = {each["metadata"]["name"]: each["data"] for each in objects(overlay, "ConfigMap")}
    found = dict(maps[container["envFrom"][0]["configMapRef"]["name"]])
    labels = group["spec"]["template"]["metadata"]["labels"] | {POD_INDEX: "0"}
    fields = {f"metadata.labels['{name}']": value for name, value in labels.items()}
    fields |= {"metadata.name": f"{group['metadata']['name']}-0", "metadata.namespace": "dittomq"}
    for each in container["env"]:
        value = each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], value)
    return found


def test_a_broker_takes_every_setting_that_it_is_given(overlay: str) -> None:
    for group in groups(overlay):
        config = load(StartConfig, None, environment(overlay, group), []).value
        broker = group["metadata"]["labels"]["dittomq/broker"]

        assert config.name == f"{broker}/0"
        assert config.replication.replicas_expected + 1 == group["spec"]["replicas"]
        assert config.advertise["default"] == f"{group['metadata']['name']}-0.{group['spec']['serviceName']}.dittomq.svc:10911"


def test_a_group_may_touch_no_lease_and_label_no_pod_but_its_own(overlay: str) -> None:
    for role in objects(overlay, "Role"):
        broker = role["metadata"]["labels"]["dittomq/broker"]
        [replicas] = [each["spec"]["replicas"] for each in groups(overlay) if each["metadata"]["name"] == f"dittomq-{broker}"]
        own, new, pods_ = role["rules"]
        assert (own["resourceNames"], own["verbs"]) == ([f"dittomq-{broker}"], ["get", "update", "watch"])
        assert (new["resources"], new["verbs"]) == (["leases"], ["create"])
        assert (pods_["resources"], pods_["verbs"]) == (["pods/status"], ["patch"])
        assert pods_["resourceNames"] == [f"dittomq-{broker}-{each}" for each in range(len(pods_["resourceNames"]))]
        assert len(pods_["resourceNames"]) >= replicas


def test_a_nodes_certificate_has_every_name_by_which_others_call_it(overlay: str) -> None:
    certified = [each["spec"] for each in objects(overlay, "Certificate") if each["spec"]["secretName"] == "dittomq-node"]
    secrets = [volume.get("secret", {}).get("secretName") for kind, each in pods(overlay) for volume in each["spec"]["volumes"]]
    assert secrets.count("dittomq-node") == len(certified) * len(objects(overlay, "StatefulSet"))
    for group in groups(overlay):
        settings = environment(overlay, group)
        own = {value for name, value in settings.items() if name.startswith("DITTOMQ_ADVERTISE")}
        called = {each.rpartition(":")[0] for each in (*own, *json.loads(settings["DITTOMQ_NODE__NAMESERVERS"]))}
        for certificate in certified:  # gRPC takes a wildcard for one label, before two others at least
            names = set(certificate["dnsNames"])
            assert {name for name in called if name not in names and f"*.{name.partition('.')[2]}" not in names} == set()
            assert {name for name in names if name.startswith("*") and name.count(".") < 2} == set()


def test_every_pod_runs_without_rights_and_without_service_links(overlay: str) -> None:
    for kind, template in pods(overlay):
        spec = template["spec"]
        [container] = spec["containers"]
        assert spec["enableServiceLinks"] is False, kind  # its variables would be taken for misspelt settings
        assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (10001, True)
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert spec.get("automountServiceAccountToken", True) is ("serviceAccountName" in spec)


def test_every_selector_finds_the_pods_of_one_set(overlay: str) -> None:
    labels = [template["metadata"]["labels"] for _, template in pods(overlay)]
    for each in objects(overlay, "Service", "PodDisruptionBudget"):
        selector = each["spec"]["selector"]
        wanted = {name: value for name, value in selector.get("matchLabels", selector).items() if name != ROLE_LABEL}.items()
        assert len([found for found in labels if wanted <= found.items()]) == 1, each["metadata"]["name"]


def test_every_set_has_a_budget_and_probes_on_its_ops_port(overlay: str) -> None:
    budgets = {each["metadata"]["name"]: each["spec"]["maxUnavailable"] for each in objects(overlay, "PodDisruptionBudget")}
    for each in objects(overlay, "StatefulSet"):
        [container] = each["spec"]["template"]["spec"]["containers"]
        probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
        assert budgets[each["metadata"]["name"]] == 1
        assert probes == {
            "startup": {"path": "/startupz", "port": "ops"},
            "readiness": {"path": "/readyz", "port": "ops"},
            "liveness": {"path": "/livez", "port": "ops"},
        }


def test_alerts_and_dashboard_name_metrics_that_there_are(overlay: str) -> None:
    there = {name for path in files(".py") if path.parts[0] == "services" for name in _NAMED.findall((ROOT / path).read_text())}
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [rule["expr"] for rule in _rules()]
    named = {name for each in asked for name in re.findall(r"\bdittomq_[a-z_]+(?=[{)\s]|$)", each)} - {"dittomq_broker"}

    assert len(named) > 10
    assert {name for name in named if name not in there and _SUFFIXES.sub("", name) not in there} == set()


@pytest.mark.tier("nightly")
def test_each_alert_is_raised_when_it_should_be_and_not_before(overlay: str, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on PATH, as Debian's package prometheus has it")
    unit = ROOT / "deploy" / "k8s" / "tests" / "alerts.test.yaml"
    [groups_] = [each["spec"] for each in objects(overlay, "PrometheusRule")] or [yaml.safe_load(ALERTS.read_text())["spec"]]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(groups_))
    shutil.copy(unit, tmp_path)
    tested = {case["alertname"] for each in yaml.safe_load(unit.read_text())["tests"] for case in each["alert_rule_test"]}

    assert tested == {rule["alert"] for rule in _rules()}
    ran = subprocess.run([promtool, "test", "rules", unit.name], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["spec"]["groups"] for rule in group["rules"]]
