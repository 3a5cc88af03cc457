"""Configuration files of a local cluster's nodes."""

import json
from collections.abc import Mapping
from pathlib import Path

from dittomq.security.certificate_files import CertificateFiles
from dittomq.testing.state import NAMESERVER, ClusterState, LocalNode, Settings

# Small segments: a folder for trying things out should not look like gigabytes.
SEGMENT_BYTES = 64 * 1024 * 1024

Value = str | int | list[str]


def config_text(state: ClusterState, node: LocalNode, data_dir: Path, tls: CertificateFiles) -> str:
    """The TOML file with which the node's service starts."""
    tables = _nameserver(state, node, data_dir) if node.name == NAMESERVER else _broker(state, node, data_dir)
    if tls:
        tables.setdefault("tls", {}).update(ca_file=tls.ca, certificate_file=tls.certificate, key_file=tls.key)
    return "\n".join(_table(name, table) for name, table in tables.items())


def _nameserver(state: ClusterState, node: LocalNode, data_dir: Path) -> dict[str, dict[str, Value]]:
    tables: dict[str, dict[str, Value]] = {
        "node": {"cluster": state.cluster, "data_dir": str(data_dir)},
        "listen": {"clients": node.address, "ops": f"{node.host}:{node.ports.ops}"},
    }
    return _with(tables, state.shape.nameserver_settings)


def _broker(state: ClusterState, node: LocalNode, data_dir: Path) -> dict[str, dict[str, Value]]:
    broker, _, broker_id = node.name.partition("/")
    replication = f"{node.host}:{node.ports.replication}"
    tables: dict[str, dict[str, Value]] = {
        "node": {
            "cluster": state.cluster,
            "broker": broker,
            "broker_id": int(broker_id),
            "data_dir": str(data_dir),
            "nameservers": [state.node(NAMESERVER).address],
        },
        "listen": {"clients": node.address, "replication": replication, "ops": f"{node.host}:{node.ports.ops}"},
        "advertise": {"default": node.address},
        "advertise_replication": {"default": replication},
        "store": {"segment_bytes": SEGMENT_BYTES},
        "replication": {"mode": state.shape.mode, "replicas_expected": state.shape.slaves},
    }
    return _with(tables, state.shape.slave_settings if node.role == "slave" else state.shape.master_settings)


def _with(tables: dict[str, dict[str, Value]], settings: Settings) -> dict[str, dict[str, Value]]:
    for key, value in settings.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    return tables


def _table(name: str, values: Mapping[str, Value]) -> str:
    # JSON's strings, integers and lists of strings are TOML's too.
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
