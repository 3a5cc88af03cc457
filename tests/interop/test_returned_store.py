"""A store of ours that RocketMQ had open, and what it means here afterwards."""

import shutil
from pathlib import Path

import pytest

from dittomq.client import Client
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.epoch_history import FOREIGN
from dittomq.errors import StoreLocked
from dittomq.testing import LocalCluster
from tests.interop.message_view import Seen, in_log_order
from tests.interop.peer import RETRY, Peer
from tests.interop.release import Release
from tests.interop.rocketmq_visits import VISITS, Visited, pay
from tests.interop.written_store import EVENTS, TOPICS, Written, copy, log_bytes, open_store, read_all
from tests.support.real_group import MASTER, QUEUES, SEGMENT_BYTES, TOPIC
from tests.support.sequence_difference import first_difference
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

SLAVE = "a/1"


BEHIND_A_KILL = ["5.3.3-killed", "5.3.3-with-record-checksums-killed", "4.9.7-killed"]


@pytest.fixture(scope="module", params=[*(("clean", name) for name in VISITS), *(("killed", name) for name in BEHIND_A_KILL)], ids="-".join)
def visited(request: pytest.FixtureRequest, written: Written, tmp_path_factory: pytest.TempPathFactory) -> Visited:
    """Our stop, clean or a kill, and the visit behind it."""
    stop, name = request.param
    return pay(VISITS[name], copy(written.left(stop).folder, tmp_path_factory.mktemp("visited") / "store"))


def ours(visited: Visited, written: Written) -> tuple[Seen, ...]:
    """What was in the store before the visit."""
    return next(left.messages for left in (written.killed, written.clean) if left.end == visited.before)


def test_everything_that_rocketmq_appended_is_read_here(visited: Visited, written: Written, tmp_path: Path) -> None:
    store = open_store(copy(visited.folder, tmp_path / "store"))

    found = read_all(store)
    store.close(clean=True)

    assert first_difference([each for each in found if each.topic in {*TOPICS, RETRY}], [*ours(visited, written), *visited.messages]) == ""
    assert visited.load.judge(found) == ""


def test_what_we_wrote_before_is_read_as_before(visited: Visited, written: Written, tmp_path: Path) -> None:
    store = open_store(copy(visited.folder, tmp_path / "store"))

    found = read_all(store)
    store.close(clean=True)

    assert first_difference([each for each in found if each.position < visited.before], ours(visited, written)) == ""


def test_no_byte_that_rocketmq_appended_is_thrown_away(visited: Visited, tmp_path: Path) -> None:
    folder = copy(visited.folder, tmp_path / "store")
    appended = log_bytes(folder)[visited.before :]

    store = open_store(folder)
    kept = log_bytes(folder)[visited.before :].ljust(store.end - visited.before, b"\0")
    if store.recovery_truncation is not None:
        kept += (folder / store.recovery_truncation.side_file).read_bytes()
    store.close(clean=True)

    same = kept.rstrip(b"\0") == appended
    assert same, first_difference(kept, appended)


def test_verify_finds_nothing_wrong(visited: Visited) -> None:
    report = verify(open_on_disk(OsStorage(visited.folder), "visited"))

    assert report.whole, report.findings[:3]
    assert visited.ends_at(report.end)


def test_what_rocketmq_appended_has_a_stretch_of_its_own(visited: Visited, tmp_path: Path) -> None:
    store = open_store(copy(visited.folder, tmp_path / "store"))
    epoch_history = store.epoch_history
    store.close(clean=True)

    assert [(entry.master_id == FOREIGN, entry.start) for entry in epoch_history][-1] == (True, visited.before)


@pytest.mark.parametrize("visited", [("clean", "5.3.3"), ("clean", "5.3.3-with-record-checksums")], indirect=True, ids="-".join)
def test_bytes_of_another_hand_have_an_epoch_of_their_own_and_reach_the_slave(visited: Visited, written: Written, tmp_path: Path) -> None:
    cluster = LocalCluster(copy(written.cluster, tmp_path / "cluster"))
    shutil.rmtree(cluster.data_dir(MASTER))
    copy(visited.folder, cluster.data_dir(MASTER))

    theirs = [each for each in visited.messages if each.topic == TOPIC]
    with cluster, Client(cluster.nameserver) as mq:

        def on_the_slave() -> list[Seen]:
            read = [message for queue in range(QUEUES) for message in mq.reader(TOPIC, queue, node=SLAVE).messages(until_end=True)]
            return [each for each in in_log_order([Seen.stored(message) for message in read]) if each.position >= visited.before]

        eventually(lambda: len(on_the_slave()) >= len(theirs), "the slave has what RocketMQ appended")
        found = on_the_slave()
    starts = {node: starts_of(cluster.data_dir(node)) for node in (MASTER, SLAVE)}

    assert {visited.before, visited.end} <= starts[MASTER]
    assert visited.before in starts[SLAVE], "the epoch behind it holds nothing yet"
    assert first_difference(found, theirs) == ""


def starts_of(folder: Path) -> set[int]:
    """Where the stretches of the store's epoch history begin."""
    store = open_store(folder)
    starts = {int(entry.start) for entry in store.epoch_history}
    store.close(clean=True)
    return starts


def test_a_visit_that_appends_nothing_leaves_no_trace_in_the_log(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    folder = copy(written.clean.folder, tmp_path / "store")
    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        peer.read(EVENTS)
        peer.close()

    store = open_store(folder)
    found = read_all(store)
    store.close(clean=True)

    assert first_difference(found, written.clean.messages) == ""
    assert (store.end, store.generation, store.recovery_truncation) == (written.clean.end, 0, None)


def test_a_store_that_rocketmq_has_open_is_refused(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    folder = copy(written.clean.folder, tmp_path / "store")

    with Peer(rocketmq, folder, SEGMENT_BYTES), pytest.raises(StoreLocked):
        open_store(folder)
