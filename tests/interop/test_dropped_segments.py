"""A store of ours whose first segments were dropped, and RocketMQ: it opens, reads and appends to what is left, and we read on."""

import shutil
from pathlib import Path

import pytest

from tests.interop.message_view import Seen, in_log_order
from tests.interop.peer import Outgoing, Peer
from tests.interop.release import Release
from tests.interop.written_store import EVENTS, LONG, TOPICS, Written, copy, open_store, read_all
from tests.support.real_group import QUEUES, SEGMENT_BYTES, TOPIC
from tests.support.stores import frame, open_epoch

pytestmark = pytest.mark.tier("nightly")


def drop_the_only_message_of(topic: str, folder: Path) -> tuple[int, list[Seen]]:
    """Go on in the store for a segment and more, then drop all up to that message; where it begins now, and what it held behind."""
    store = open_store(folder)
    open_epoch(store)
    for _ in range(30):
        store.append([frame(bytes(50_000), topic=EVENTS)], 0)
    held = read_all(store)
    [position] = [each.position for each in held if each.topic == topic]
    begin = (position // SEGMENT_BYTES + 1) * SEGMENT_BYTES
    store.persist_recovery_point(store.sync(), store.end)
    assert store.drop_before(begin) == begin
    assert store.queue_range(topic, 0) == (1, 1)
    store.close(clean=True)
    return begin, [each for each in held if each.position >= begin and each.topic in TOPICS]


def test_filler_of_a_queues_first_file_equals_rocketmqs_byte_for_byte(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    """It fills the file up to the queue's first message."""
    folder = copy(written.clean.folder, tmp_path / "store")
    for name in ("consumequeue", "index", "dittomq"):
        shutil.rmtree(folder / name)
    (folder / "checkpoint").unlink()
    (folder / "commitlog" / f"{0:020d}").unlink()
    (tmp_path / "ours").mkdir()
    ours = copy(folder / "commitlog", tmp_path / "ours" / "commitlog").parent

    store = open_store(ours)
    read_all(store)
    store.close(clean=True)
    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        peer.read(TOPIC)
        peer.close()

    found, theirs = (queue_files(each) for each in (ours, folder))
    assert found.keys() == theirs.keys() >= {f"{TOPIC}/{queue}/{0:020d}" for queue in range(QUEUES)}
    assert [path for path in found if found[path] != theirs[path]] == []
    assert b"\0\0\0\0\0\0\0\0\x7f\xff\xff\xff" in found[f"{TOPIC}/0/{0:020d}"]


def queue_files(store: Path) -> dict[str, bytes]:
    """Of each queue that a producer of ours wrote; RocketMQ makes topics of its own."""
    queues = store / "consumequeue"
    return {str(path.relative_to(queues)): path.read_bytes() for topic in TOPICS for path in (queues / topic).rglob("*") if path.is_file()}


def test_what_is_left_is_read_there_and_what_is_appended_there_is_read_here(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    folder = copy(written.clean.folder, tmp_path / "store")
    begin, left = drop_the_only_message_of(LONG, folder)

    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        # 4.9 lets a queue of which nothing is left begin at its first unit, in its own stores too: those are not read.
        found = in_log_order([Seen.pulled(line) for line in peer.read(EVENTS)])
        complaints = [line for line in peer.complaints() if " ERROR " in line]
        assert peer.start == begin
        peer.produce(LONG, 0, [Outgoing(b"appended")])
        peer.close()

    assert (found, complaints) == ([each for each in left if each.topic == EVENTS], [])
    store = open_store(folder)
    *before, appended = [each for each in read_all(store) if each.topic in TOPICS]
    store.close(clean=True)
    assert before == left
    assert (appended.topic, appended.queue_offset, appended.body) == (LONG, 1, b"appended")
