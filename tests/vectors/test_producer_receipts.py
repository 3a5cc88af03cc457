"""What RocketMQ's producers were told of each message, offsets and ids, against where we find it in the broker's store."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import items, open_on_disk
from dittomq.commitlog.records.compression import inflate
from dittomq.commitlog.records.decoding import Record
from dittomq.commitlog.records.rocketmq_records import INNER_BATCH
from tests.support import vectors
from tests.support.sequence_difference import first_difference
from tests.vectors.conftest import Line
from tests.vectors.opened_stores import rebuilt

# A delayed message and one of a transaction wait in a topic of the broker's; its own are properties then.
WAITS_AS = {"topic": "REAL_TOPIC", "queueId": "REAL_QID"}
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
REFUSED = "queues-5.3.3"


@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_every_message_lies_where_its_producer_was_told_and_is_what_was_sent(variant: str, unpacked: Callable[[str], Path]) -> None:
    found = Found(unpacked(variant) / "master")
    told = [(line, found.by(line)) for line in lines(variant)]

    known = [(line, record) for line, record in told if not record.system_flag & INNER_BATCH]
    assert first_difference([in_the_producers_words(record, line) for line, record in known], [line for line, _ in known]) == ""
    assert len(known) > 200


@pytest.mark.parametrize("variant", [each for each in vectors.VARIANTS if each != REFUSED])
def test_a_reader_gets_each_by_the_queue_offset_that_its_producer_was_told(
    variant: str, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = unpacked(variant) / "master"
    found = Found(folder)
    told = [(line, found.by(line)) for line in lines(variant)]
    store = rebuilt(folder / "commitlog", tmp_path / "store")

    read = [store.read_queue(record.topic, record.queue, line["queueOffset"], 1, 1).messages[0] for line, record in told]
    store.close(clean=True)

    assert (
        first_difference(
            [(message.physical_offset, hashlib.sha256(message.body).hexdigest()) for message in read],
            [(record.physical_offset, line["bodySha256"]) for line, record in told],
        )
        == ""
    )


def lines(variant: str) -> Iterator[Line]:
    """Of every message of every phase."""
    for path in sorted((vectors.folder() / variant).glob("sent*.jsonl.xz")):
        yield from vectors.lines(variant, path.name)


class Found:
    """The records of a store as we read them."""

    def __init__(self, store: Path) -> None:
        whole = [item.record for item in items(open_on_disk(OsStorage(store), str(store))) if item.record is not None]
        self._at = {record.physical_offset: record for record in whole}
        # The broker writes one anew each time it asks after its transaction.
        self._half = {record.properties["UNIQ_KEY"]: record for record in reversed(whole) if record.topic == HALF_TOPIC}

    def by(self, line: Line) -> Record:
        """The record of which a producer was told; of one of a transaction it was told only its own id."""
        place = line["offsetMsgId"]
        return self._half[line["msgId"]] if place is None else self._at[int(place[-16:], 16)]


def in_the_producers_words(record: Record, line: Line) -> dict[str, Any]:
    """What we know of a record, under the names of a producer's line; what a record does not hold is as it was told."""
    body, host = inflate(record.body, record.system_flag), record.store_host
    place = f"{host.address.hex()}{host.port:08x}{record.physical_offset:016x}".upper()
    return line | {
        "topic": record.properties.get(WAITS_AS["topic"], record.topic),
        "queueId": int(record.properties.get(WAITS_AS["queueId"], record.queue)),
        "queueOffset": record.queue_offset,
        # RocketMQ's client gives each message of a batch an id and sends all of them under another one, the batch's.
        "msgId": line["msgId"] if line["step"] == "batch" else record.properties["UNIQ_KEY"],
        "offsetMsgId": place if line["offsetMsgId"] is not None else None,
        "bodySha256": hashlib.sha256(body).hexdigest(),
        "bodyLength": len(body),
    }
