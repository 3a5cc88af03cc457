"""What we make of the log of a running RocketMQ broker when nothing else is there, against what the broker had made of it."""

import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest

from dittomq.commitlog.records.format import UNIT
from dittomq.commitlog.store import Store
from dittomq.message import StoredMessage
from dittomq.properties import OURS
from tests.support import vectors
from tests.support.sequence_difference import first_difference
from tests.vectors.conftest import STORES, Vector
from tests.vectors.opened_stores import NOT_READ, rebuilt

# Killed before all of the log was in the queues; some hold a unit of a torn record. What is refused, NOT_READ, is not built either.
KILLED = [name for name in STORES if name.startswith(("killed", "diverged"))]
CLOSED = [name for name in STORES if name not in {*KILLED, *NOT_READ}]
# The Java client's pulls, after each phase of a broker's life.
PULLED = {"crc-5.3.3": ["client"], "plain-4.9.7": ["client"], "plain-5.3.3": ["client"], "ipv6-5.3.3": ["client-0", "client-1", "client-2"]}
# The client's own additions, and what is compared by itself.
LEFT_OUT = OURS | {"MIN_OFFSET", "MAX_OFFSET"}


@pytest.mark.parametrize("vector", CLOSED, indirect=True)
def test_every_file_of_every_queue_is_rocketmqs_byte_for_byte(vector: Vector, tmp_path: Path) -> None:
    rebuilt(vector.folder / "commitlog", tmp_path / "store").close(clean=True)

    theirs = sorted(path.relative_to(vector.folder) for path in (vector.folder / "consumequeue").rglob("*") if path.is_file())
    differing = [str(path) for path in theirs if (vector.folder / path).read_bytes() != (tmp_path / "store" / path).read_bytes()]
    assert theirs
    assert differing == []


@pytest.mark.parametrize("vector", KILLED, indirect=True)
def test_rebuilt_queue_of_a_killed_broker_has_all_its_units(vector: Vector, tmp_path: Path) -> None:
    """What it had not come to follows."""
    rebuilt(vector.folder / "commitlog", tmp_path / "store").close(clean=True)

    paths = sorted(path.relative_to(vector.folder) for path in (vector.folder / "consumequeue").rglob("*") if path.is_file())
    differing = []
    for path in paths:
        theirs, ours = (list(UNIT.iter_unpack(root.joinpath(path).read_bytes())) for root in (vector.folder, tmp_path / "store"))
        built = [number for number, unit in enumerate(theirs) if unit[1] and unit[0] != vector.torn]
        differing += [(str(path), number) for number in built if ours[number] != theirs[number]]
        assert not built or not any(unit[1] for unit in ours[: built[0]]), path
    assert paths
    assert differing == []


@pytest.mark.parametrize("vector", CLOSED, indirect=True)
def test_the_checkpoint_tells_rocketmq_the_same_times_as_its_own(vector: Vector, tmp_path: Path) -> None:
    rebuilt(vector.folder / "commitlog", tmp_path / "store").close(clean=True)

    ours, theirs = (struct.unpack(">qq", (folder / "checkpoint").read_bytes()[:16]) for folder in (tmp_path / "store", vector.folder))
    assert ours == theirs == (vector.opened[0]["physicMsgTimestamp"], vector.opened[0]["logicsMsgTimestamp"])
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize("variant", PULLED)
def test_every_message_is_read_as_the_java_client_pulled_it(variant: str, tmp_path: Path) -> None:
    store = rebuilt(vectors.unpack(variant, tmp_path) / "master" / "commitlog", tmp_path / "store")

    pulled = {line["commitLogOffset"]: line for name in PULLED[variant] for line in vectors.lines(variant, f"{name}.jsonl.xz")}
    found = [told(message_at(store, line)) for line in pulled.values()]
    store.close(clean=True)

    expected = [{key: expected_of(line)[key] for key in found[0]} for line in pulled.values()]
    assert len(pulled) > 300
    assert first_difference(found, expected) == ""


def message_at(store: Store, line: dict[str, Any]) -> StoredMessage:
    return store.read_queue(line["queueTopic"], line["queueId"], line["queueOffset"], 1, 1).messages[0]


def told(message: StoredMessage) -> dict[str, Any]:
    return {
        "commitLogOffset": message.physical_offset,
        "queueOffset": message.queue_offset,
        "storeSize": message.record_bytes,
        "flag": message.flag,
        "bodyLength": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "tags": message.tag,
        "keys": " ".join(message.keys),
        "bornTimestamp": message.born_ms,
        "storeTimestamp": message.store_ms,
        "properties": dict(message.properties),
    }


def expected_of(line: dict[str, Any]) -> dict[str, Any]:
    properties = {name: value for name, value in line["properties"].items() if name not in LEFT_OUT}
    return {**line, "tags": line["tags"] or "", "keys": line["keys"] or "", "properties": properties}
