"""Brokers of both sides, killed while messages are sent to them: the other side reads every message that was acknowledged."""

import itertools
import json
import queue
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.client.sync_client import SyncProducer
from dittomq.errors import DittoError
from tests.interop.load import LOAD_QUEUES, Load, body_of
from tests.interop.message_view import Seen
from tests.interop.peer import Peer
from tests.interop.release import VERSIONS, Release, release
from tests.interop.rocketmq_visits import ANSWERS_BEFORE_THE_KILL, KILLED, LOAD, VISITS, kill_under_load
from tests.interop.written_store import copy, open_store, read_all
from tests.support.real_group import MASTER, SEGMENT_BYTES, real_group, shape

pytestmark = pytest.mark.tier("nightly")

OUR_LOAD = "load-here"
ANSWER_WITHIN_S = 30.0
RETRY_S = 3.0  # a topic that was made this very moment may not be in the first route that a busy machine gets
SHORT_BODY_BYTES = 1_000  # what is written all the time is not to fill the disk


@dataclass(frozen=True, slots=True)
class Overrun:
    """A store of ours whose master was killed under load."""

    folder: Path
    load: Load


@pytest.fixture(scope="module")
def overrun(tmp_path_factory: pytest.TempPathFactory) -> Overrun:
    release(VERSIONS[0])  # where there is no RocketMQ, nothing is written
    folder = tmp_path_factory.mktemp("overrun")
    told: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()

    def send(producer: SyncProducer, to_queue: int) -> None:
        try:
            for number in itertools.count():
                receipt = producer.publish(OUR_LOAD, body_of(number), queue=to_queue)
                told.put((to_queue, receipt.queue_offset, number))
        except DittoError:  # the master is gone
            return

    with real_group(folder, shape(slaves=0)) as group:
        group.mq.admin.create_topic(OUR_LOAD, LOAD_QUEUES)
        with group.mq.producer(retry_s=RETRY_S) as producer, ThreadPoolExecutor(LOAD_QUEUES) as senders:
            for number in range(LOAD_QUEUES):
                senders.submit(send, producer, number)
            first = [told.get(timeout=ANSWER_WITHIN_S) for _ in range(ANSWERS_BEFORE_THE_KILL)]
            group.cluster.kill(MASTER)
        acknowledged = frozenset([*first, *(told.get() for _ in range(told.qsize()))])
        return Overrun(copy(group.cluster.data_dir(MASTER), folder / "store"), Load(OUR_LOAD, acknowledged))


@pytest.mark.parametrize("name", KILLED)
def test_message_acknowledged_before_a_kill_is_read_by_the_other_broker(name: str, overrun: Overrun, tmp_path: Path) -> None:
    """It holds for either broker."""
    visit = VISITS[name]
    folder = copy(overrun.folder, tmp_path / "store")

    with Peer(release(visit.version), folder, SEGMENT_BYTES, **visit.settings) as peer:
        there = [Seen.pulled(line) for line in peer.read(OUR_LOAD)]
        theirs = kill_under_load(peer)
    store = open_store(folder)
    here = read_all(store)
    store.close(clean=True)

    assert overrun.load.judge(there) == ""
    assert overrun.load.judge(here) == ""
    assert theirs.judge(here) == ""


def test_store_that_rocketmq_is_writing_reads_clean_up_to_its_end(
    rocketmq: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        peer.create(LOAD, LOAD_QUEUES)
        peer.begin_load(LOAD, SHORT_BODY_BYTES)
        for answers in (100, 400):
            peer.wait_told(answers)
            for command in ("stats", "verify"):
                code = run(["log", command, str(folder), "--json"])

                printed = json.loads(capsys.readouterr().out)
                found = printed["verified"] if command == "stats" else printed
                assert (code, found["whole"], found["counts"].keys() - {"torn end"}) == (0, True, set()), found
                assert found["records"] >= answers
        assert run(["log", "digest", str(folder), "-o", str(tmp_path / "digest")]) == 0
