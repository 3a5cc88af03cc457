"""Stores of RocketMQ opened here: what RocketMQ's own start makes of them, and what it does not notice."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.errors import StoreOpenFailed
from tests.vectors.conftest import STORES, Vector
from tests.vectors.opened_stores import open_copy

Units = dict[int, tuple[int, ...]]
"""By queue offset: position, size and tags code of a message."""

REFUSED = {"queues-5.3.3/master": "batch queues", "queues-5.3.3/slave": "queue extensions"}


@pytest.mark.parametrize("vector", [name for name in STORES if name not in REFUSED], indirect=True)
def test_a_store_is_opened_and_its_queues_hold_what_rocketmqs_hold(vector: Vector, tmp_path: Path) -> None:
    store = open_copy(vector.folder, tmp_path / "store")

    store.dispatch(store.end)
    ours = {key: units(tmp_path / "store", *key, store.queue_range(*key)) for key in store.queues()}
    store.close(clean=True)

    killed = vector.torn is not None and vector.name.startswith("killed")
    assert store.end == (vector.torn if killed else vector.opened[0]["maxPhyOffset"])
    for key, held in ours.items():
        places = {offset: unit[:2] for offset, unit in held.items() if unit[1]}
        assert places == records_of(vector, *key), f"{key[0]} queue {key[1]}"
    for key, theirs in queues_of(vector):
        assert theirs.items() <= ours[key].items(), f"{key[0]} queue {key[1]}"
        assert ours[key].keys() == theirs.keys() or is_known_to_differ(vector, key[0])


@pytest.mark.parametrize("vector", REFUSED, indirect=True)
def test_what_is_not_read_is_refused_by_name(vector: Vector, tmp_path: Path) -> None:
    with pytest.raises(StoreOpenFailed, match=REFUSED[vector.name]):
        open_copy(vector.folder, tmp_path / "store")


def queues_of(vector: Vector) -> Iterator[tuple[tuple[str, int], Units]]:
    """What RocketMQ's queues hold after its start, without the record that it should not have kept."""
    for line in vector.opened:
        if line["kind"] == "queue":
            numbered = enumerate(line["units"], line["minOffset"])
            yield (line["topic"], line["queueId"]), {offset: tuple(unit) for offset, unit in numbered if unit[0] != vector.torn}


def records_of(vector: Vector, topic: str, queue: int) -> dict[int, tuple[int, int]]:
    """By queue offset: position and size of each record that a queue has a unit for, by RocketMQ's decoder."""
    mine = [line for line in vector.records if line.get("topic") == topic and line["queueId"] == queue and line["position"] != vector.torn]
    return {line["queueOffset"]: (line["position"], line["totalSize"]) for line in mine if line["sysFlag"] & 0xC not in {0x4, 0xC}}


def is_known_to_differ(vector: Vector, topic: str) -> bool:
    """Whether we hold more offsets of the topic than RocketMQ: it was deleted there and came back by halves, or holds a torn record."""
    return topic.startswith("doomed") or any(line.get("topic") == topic for line in vector.records if line["position"] == vector.torn)


def units(store: Path, topic: str, queue: int, offsets: tuple[int, int]) -> Units:
    """What the queue's files hold, read as they are."""
    files = sorted((store / "consumequeue" / topic / str(queue)).iterdir())
    first = int(files[0].name) // UNIT_BYTES
    data = b"".join(path.read_bytes() for path in files)
    return {offset: UNIT.unpack_from(data, (offset - first) * UNIT_BYTES) for offset in range(*offsets)}
