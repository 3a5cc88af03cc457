"""A Kubernetes of one node that runs pods, for the tests of manifests: started from .tools, and gone with the test process. It needs root.

It lives in namespaces of its own: network, mounts, processes. Process 1 there is this module, run as a program; when that ends, the kernel
takes all processes, mounts, links and firewall rules of the node with it. Without a route out of its network it pulls no image: it is
given those that the tests build. Volumes are directories, so none is as small as it says, and none can be snapshotted; kube-router
enforces network policies.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.containers import engine
from tests.support.debian_programs import NoProgramError, find_programs, their_environment
from tests.support.etcd import etcd_program
from tests.support.kubernetes_programs import ADMINISTRATOR, SERVICES, api_server, authority, program, programs, write_credentials
from tests.support.tree import ROOT
from tests.support.waiting import PATIENCE_S, eventually

_UNPACKED: Final = ("containerd", "runc", "iptables", "ipset")  # where the machine lacks them
_NEEDED: Final = ("ip", "mount", "nsenter", "setpriv", "sysctl", "unshare")
_NAMES_SERVICE: Final = Path(__file__).parent / "kubernetes_node_build" / "names.yaml"
_NODE: Final = "node"
_ADDRESS: Final = "10.255.0.1"
_PODS: Final = "10.244.0.0/24"
_NAMES: Final = "10.96.0.10"
_PORT: Final = 6443
_VOLUMES: Final = 40
_SETTINGS_OF_THE_MACHINE: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_RUNTIME: Final = "/run/containerd/containerd.sock"
_READY: Final = "ready"  # the file that says so


@contextlib.contextmanager
def kubernetes_node(folder: Path, images: Mapping[str, str]) -> Iterator[str]:
    """A node that holds these images of the container engine, each by the name that it has there: the command line of a kubectl.

    Skips where there can be none.
    """
    programs(), etcd_program()
    if os.geteuid() != 0:
        pytest.skip("only root can start a Kubernetes node")
    if missing := [name for name in _NEEDED if shutil.which(name) is None]:
        pytest.skip(f"a Kubernetes node needs {', '.join(missing)} on PATH")
    try:
        find_programs(*_UNPACKED)
    except NoProgramError as why:
        pytest.skip(f"a Kubernetes node needs {', '.join(_UNPACKED)}: {why}")
    cgroup = f"dittomq-node-{os.getpid()}"
    alone = ("--net", "--mount", "--pid", "--uts", "--ipc", "--mount-proc", "--fork", "--kill-child=KILL")
    inside = (sys.executable, "-m", "tests.support.kubernetes_node", str(folder), cgroup)
    with contextlib.ExitStack() as made:
        made.callback(shutil.rmtree, folder)
        try:
            _make_cgroup(cgroup, made)
        except OSError as refused:
            pytest.skip(f"a Kubernetes node needs control groups that can be changed: {refused}")
        _save(folder, images)
        (folder / "names.json").write_text(json.dumps(dict(images)))
        write_credentials(folder)
        log = made.enter_context((folder / "node.log").open("wb"))
        node = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *alone, *inside],
            cwd=ROOT,
            env=their_environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        made.callback(_end, node)
        try:
            eventually(lambda: (folder / _READY).exists() or node.poll() is not None, "the node is ready", within_s=10 * PATIENCE_S)
            assert node.poll() is None, "the node has ended"
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{_ends_of_logs(folder)}") from failed
        [first] = _children(node.pid)
        yield shlex.join(["nsenter", "--target", str(first), "--net", *_kubectl(folder)])
        assert node.poll() is None, f"the node has ended before its tests\n{_ends_of_logs(folder)}"


def _ends_of_logs(folder: Path) -> str:
    """The last lines of all that runs in the node: the folder is gone when the failure is read."""
    logs = sorted(folder.glob("*.log"), key=lambda each: each.name != "node.log")
    return "\n".join(f"== {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in logs)


def _save(folder: Path, images: Iterable[str]) -> None:
    """The images, and those of the node's own programs, as an archive in the folder."""
    own = []
    for name in ("pause", "kubernetes"):
        with tarfile.open(folder / name, "w") as archive:
            archive.add(programs() / name, name)
        own.append(f"dittomq-test/{name}:1")
        engine("import", "--change", f'ENTRYPOINT ["/{name}"]', str(folder / name), own[-1], timeout_s=300)
    engine("save", "--output", str(folder / "images.tar"), *images, *own, timeout_s=300)
    engine("rmi", *own)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _end(node: subprocess.Popen[bytes]) -> None:
    """Kill process 1 of the node, and so all others in there."""
    for first in _children(node.pid) if node.poll() is None else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, 9)
    node.wait(PATIENCE_S)


def _make_cgroup(name: str, made: contextlib.ExitStack) -> None:
    """What the kubelet works under, in each hierarchy; removed in the end, with those below."""
    one = (_CGROUPS / "cgroup.procs").exists()  # version 2 has one hierarchy; version 1 has one for each controller
    for top in (_CGROUPS,) if one else {each.resolve() for each in _CGROUPS.iterdir() if (each / "cgroup.procs").exists()}:
        for old in top.glob("dittomq-node-*"):  # of processes that were killed before they could remove it
            if not Path("/proc", old.name.rpartition("-")[2]).exists():
                _remove_cgroup(old)
        if one:
            _enable(top, made)
        (top / name).mkdir()
        made.callback(_remove_cgroup, top / name)
        for setting in ("cpuset.cpus", "cpuset.mems") if not one else ():  # a new one has none
            if (top / setting).exists():
                (top / name / setting).write_text((top / setting).read_text())
        if one:
            _enable(top / name, made)


def _enable(cgroup: Path, made: contextlib.ExitStack) -> None:
    """Have the controllers work below it; in the end only those that did before."""
    control = cgroup / "cgroup.subtree_control"
    lacking = [each for each in _CONTROLLERS if each not in control.read_text().split()]
    made.callback(_disable, control, lacking)
    control.write_text(" ".join(f"+{each}" for each in lacking))


def _disable(control: Path, controllers: Iterable[str]) -> None:
    with contextlib.suppress(OSError):  # another node may use them
        control.write_text(" ".join(f"-{each}" for each in controllers))


def _remove_cgroup(path: Path) -> None:
    def removed() -> bool:
        with contextlib.suppress(OSError):  # what was killed may still leave it
            for each, _, _ in os.walk(path, topdown=False):
                Path(each).rmdir()
        return not path.exists()

    eventually(removed, f"{path} is empty")


# What runs in the namespaces.


def main(folder: Path, cgroup: str) -> None:
    """As process 1 of the node: start it, say so by a file, and wait. The end of a program that it needs is its own."""
    _furnish()
    started: dict[int, str] = {}

    def start(name: str, *command: str) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            started[subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True).pid] = name

    start("etcd", str(etcd_program()), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn")
    start("kube-apiserver", *api_server(folder, "http://127.0.0.1:2379", host=_ADDRESS, port=_PORT, advertised=_ADDRESS))
    start("containerd", "containerd", "--config", _write_runtime(folder))
    _await("ctr", "version")
    _run("ctr", "--namespace", "k8s.io", "images", "import", str(folder / "images.tar"))
    for built, name in json.loads((folder / "names.json").read_text()).items():
        _run("ctr", "--namespace", "k8s.io", "images", "tag", f"docker.io/library/{built}", f"docker.io/library/{name}")
    kubectl = _kubectl(folder)
    _write_access(folder)
    _await(*kubectl, "get", "--raw", "/readyz")
    for name, flags in _components(folder, cgroup).items():
        if name == "kube-router":  # it looks for its node once
            _await(*kubectl, "wait", f"node/{_NODE}", "--for", "condition=Ready", "--timeout", "60s")
        start(name, *program(name), *(f"--{flag}={value}" for flag, value in flags.items()))
    _run(*kubectl, "apply", "--filename", str(_NAMES_SERVICE), "--filename", _write(folder / "volumes.json", _volumes(folder)))
    _await(*kubectl, "--namespace", "kube-system", "rollout", "status", "deployment/coredns", "--timeout", "60s")
    (folder / _READY).touch()
    while True:
        ended, status = os.wait()  # of orphans as well
        if ended in started:
            raise SystemExit(f"{started[ended]} has ended with {status}")


def _furnish() -> None:
    """Directories of the node's own where paths are fixed, settings that only it sees, and an address that is not on loopback."""
    for directory in ("/run", "/var/lib", "/var/log"):
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "node", directory)
    for setting in _SETTINGS_OF_THE_MACHINE:  # the kubelet changes them
        own = Path("/run", setting.replace("/", "-"))
        own.write_text(Path("/proc/sys", setting).read_text())
        _run("mount", "--bind", str(own), f"/proc/sys/{setting}")
    _run("mount", "--make-rshared", "/")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", _ADDRESS, "dev", "lo")
    _run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")


def _components(folder: Path, cgroup: str) -> dict[str, dict[str, object]]:
    """What else a node is, each with its flags."""
    access = {"kubeconfig": folder / "kubeconfig"}
    controlling = access | {"leader-elect": "false", "secure-port": 0}
    plugins = folder / "plugins"
    kubelet = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "containerRuntimeEndpoint": f"unix://{_RUNTIME}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "clusterDNS": [_NAMES],
        "clusterDomain": "cluster.local",
        "resolvConf": _write(folder / "resolv.conf", ""),
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "volumePluginDir": str(plugins),
        "imageGCHighThresholdPercent": 100,  # an image that is gone cannot be had again
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
    }
    proxy = {
        "kind": "KubeProxyConfiguration",
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "clientConnection": {"kubeconfig": str(folder / "kubeconfig")},
        "mode": "iptables",
        "clusterCIDR": _PODS,
        "hostnameOverride": _NODE,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},  # the machine's affair
    }
    return {
        "kube-controller-manager": {
            **controlling,
            "root-ca-file": authority(folder),
            "service-account-private-key-file": folder / "accounts.key",
            "flex-volume-plugin-dir": plugins,
        },
        "kube-scheduler": controlling,
        "kubelet": {
            **access,
            "config": _write(folder / "kubelet.json", kubelet),
            "root-dir": folder / "kubelet",
            "hostname-override": _NODE,
            "node-ip": _ADDRESS,
        },
        "kube-proxy": {"config": _write(folder / "proxy.json", proxy)},
        "kube-router": {
            **access,
            "run-firewall": "true",
            "run-router": "false",
            "run-service-proxy": "false",
            "hostname-override": _NODE,
            "service-cluster-ip-range": SERVICES,
            "enable-ipv6": "false",
            "health-port": 0,
            "metrics-port": 0,
        },
    }


def _write_runtime(folder: Path) -> str:
    """The settings of containerd, and of the network that it joins pods to."""
    addresses = {"type": "host-local", "dataDir": "/run/addresses", "ranges": [[{"subnet": _PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    (folder / "network").mkdir()
    _write(folder / "network" / "pods.conflist", {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]})
    lines = f"""version = 2
root = "{folder / "containerd"}"
state = "/run/containerd"
[grpc]
address = "{_RUNTIME}"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/dittomq-test/pause:1"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{programs()}"
conf_dir = "{folder / "network"}"
"""
    return _write(folder / "containerd.toml", lines)


def _write_access(folder: Path) -> None:
    """How the API server is reached by those who may do all."""
    cluster = {"server": f"https://{_ADDRESS}:{_PORT}", "certificate-authority": str(authority(folder))}
    access = {
        "kind": "Config",
        "apiVersion": "v1",
        "clusters": [{"name": _NODE, "cluster": cluster}],
        "users": [{"name": _NODE, "user": {"token": ADMINISTRATOR}}],
        "contexts": [{"name": _NODE, "context": {"cluster": _NODE, "user": _NODE}}],
        "current-context": _NODE,
    }
    _write(folder / "kubeconfig", access)


def _volumes(folder: Path) -> dict[str, object]:
    """As many directories as all tests together claim: a volume that was released is not used again."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [_NODE]}
    found = []
    for at in range(_VOLUMES):
        (folder / "volumes" / str(at)).mkdir(parents=True)
        spec = {
            "capacity": {"storage": "1Ti"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "directories",
            "local": {"path": str(folder / "volumes" / str(at))},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        found.append({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": f"directory-{at}"}, "spec": spec})
    return {"kind": "List", "apiVersion": "v1", "items": found}


def _kubectl(folder: Path) -> list[str]:
    return [*program("kubectl"), "--kubeconfig", str(folder / "kubeconfig"), "--cache-dir", str(folder / "cache")]


def _write(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _await(*command: str) -> None:
    """Until it succeeds."""
    quietly = subprocess.DEVNULL
    eventually(lambda: subprocess.run(command, stdout=quietly, stderr=quietly, check=False).returncode == 0, " ".join(command))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
