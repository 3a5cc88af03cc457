"""What other projects add to a Kubernetes API: the definitions of their objects, as their Go modules hold them."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_MODULES: Final = {  # module → its hash, and the files in it
    "github.com/cert-manager/cert-manager@v1.18.2": (
        "h1:H2P75ycGcTMauV3gvpkDqLdS3RSXonWF2S49QGA1PZE=",
        ("deploy/crds/crd-certificates.yaml", "deploy/crds/crd-issuers.yaml"),
    ),
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        (
            "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ),
    ),
    "github.com/kubernetes-csi/external-snapshotter/client/v8@v8.2.0": (
        "h1:Q3jQ1NkFqv5o+F8dMmHd8SfEmlcwNeo1immFApntEwE=",
        ("config/crd/snapshot.storage.k8s.io_volumesnapshots.yaml",),
    ),
}


def definitions() -> str:
    """All of them, as YAML. Skips the test where there is no Go to fetch them with."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no go on PATH to fetch definitions with")
    command = [go, "mod", "download", "-json", *_MODULES]
    environment = os.environ | {"GOFLAGS": "-mod=mod"}
    ran = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=300, check=True)
    found, told = [], ran.stdout.replace("}\n{", "},{")
    for module in json.loads(f"[{told}]"):
        wanted, files = _MODULES[f"{module['Path']}@{module['Version']}"]
        assert module["Sum"] == wanted, module
        found += [(Path(module["Dir"]) / file).read_text(encoding="utf-8") for file in files]
    lines = [line for text in found for line in ("---", *text.splitlines())]
    return "\n".join(line for line in lines if "{{" not in line)  # a template of Helm's
