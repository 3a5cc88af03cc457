"""`dittomq log dump`, and RocketMQ's own reading in its words."""

import base64
import hashlib
import ipaddress
import json
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.commitlog.records.compression import inflate
from tests.vectors.conftest import Line


def dump(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[Line]:
    """What `log dump` prints of a store."""
    assert run(["log", "dump", str(folder), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def in_rocketmqs_words(line: Line) -> Line:
    """Every field that RocketMQ's decoder tells of a record, but the file's name."""
    body = base64.b64decode(line["body"])
    inflated = inflate(body, line["system_flag"])
    size = line["end_offset"] - line["start_offset"]
    store_address, store_port = host(*line["store_host"].rsplit(":", 1))
    return {
        "position": line["start_offset"],
        "totalSize": size,
        "commitLogOffset": line["start_offset"],
        "storeSize": size,
        "msgId": f"{store_address.packed.hex()}{store_port:08x}{line['start_offset']:016x}".upper(),
        "magic": line["magic"],
        "topic": line["topic"],
        "queueId": line["queue"],
        "queueOffset": line["queue_offset"],
        "flag": line["flag"],
        "sysFlag": line["system_flag"],
        "bodyCRC": line["body_crc"],
        "storedBodyLength": len(body),
        "storedBodySha256": hashlib.sha256(body).hexdigest(),
        "bodyLength": len(inflated),
        "bodySha256": hashlib.sha256(inflated).hexdigest(),
        "bornTimestamp": line["born_ms"],
        "bornHost": host(*line["born_host"].rsplit(":", 1)),
        "storeTimestamp": line["store_ms"],
        "storeHost": (store_address, store_port),
        "reconsumeTimes": line["reconsume_times"],
        "preparedTransactionOffset": line["prepared_offset"],
        "tags": line["properties"].get("TAGS"),
        "keys": line["properties"].get("KEYS"),
        "properties": line["properties"],
    }


def normal(line: Line) -> Line:
    """Addresses as values, without Java's zone; no name of the file."""
    fields = {name: value for name, value in line.items() if name != "file"}
    return {**fields, "bornHost": host(*line["bornHost"]), "storeHost": host(*line["storeHost"])}


def host(address: str, port: str | int) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    return ipaddress.ip_address(address.strip("[]").partition("%")[0]), int(port)
