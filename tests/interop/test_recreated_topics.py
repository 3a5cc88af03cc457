"""Topics that were deleted and made again, by either side, in a store that goes to and fro."""

from pathlib import Path

import pytest

from tests.interop.message_view import Seen
from tests.interop.peer import Outgoing, Peer
from tests.interop.release import Release
from tests.interop.written_store import AGAIN, DELETED, Written, copy, open_store, read_all
from tests.support.real_group import SEGMENT_BYTES
from tests.support.sequence_difference import first_difference
from tests.support.stores import frame, open_epoch
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")


def test_rocketmq_reads_new_messages_of_a_recreated_topic(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    """They begin in the log's second segment."""
    folder = copy(written.clean.folder, tmp_path / "store")
    store = open_store(folder)
    store.hide(store.next_offsets(AGAIN))
    open_epoch(store)
    store.append([frame(b"once more, %d" % number, topic=AGAIN) for number in range(40)], 0)
    store.persist_recovery_point(store.sync(), store.end)
    new = [each for each in read_all(store) if each.topic == AGAIN]
    store.close(clean=True)

    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        found = [Seen.pulled(line) for line in peer.read(AGAIN)]

    assert new[0].position >= SEGMENT_BYTES
    assert new[0].queue_offset > 0
    assert len(new) == 40
    assert first_difference(found, new) == ""


def test_a_topic_deleted_here_and_made_again_there_shows_the_new_messages_here(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    folder = copy(written.clean.folder, tmp_path / "store")
    store = open_store(folder)
    assert store.queue_range(DELETED, 0) == (5, 5)
    store.close(clean=True)

    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        peer.create(DELETED, 1)
        peer.produce(DELETED, 0, [Outgoing(b"made again there, %d" % number) for number in range(3)])
        told = eventually(lambda: lines if len(lines := peer.read(DELETED)) == 3 else [], "its queue holds all of them")
        there = [Seen.pulled(line) for line in told]
        peer.close()
    store = open_store(folder)
    here = [each for each in read_all(store) if each.topic == DELETED]
    store.close(clean=True)
    again = open_store(folder)
    found = [each for each in read_all(again) if each.topic == DELETED]
    again.close(clean=True)

    assert [each.queue_offset for each in there] == [0, 1, 2]
    assert first_difference(here, there) == ""
    assert first_difference(found, there) == ""
