"""Reading from masters and slaves over real gRPC: long polls, tokens, offsets that are not there."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dittomq.client import Message, Page
from dittomq.errors import InvalidField, NotReady, OffsetOutOfRange
from dittomq.ha_status import WaitKind
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.tokens import encode_token
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.waiting import eventually, seconds_for

WAIT_S = 60.0  # the longest that may be asked for
COPIES = ["a/0", "a/1"]


@pytest.mark.parametrize("name", COPIES)
def test_a_long_poll_ends_with_the_message_it_waited_for(group: RealGroup, name: str) -> None:
    reader = group.mq.reader(TOPIC, 1, node=name)
    eventually(lambda: reader.pull(0).max_offset == group.mq.reader(TOPIC, 1, node=MASTER).pull(0).max_offset, "both ends are equal")
    end = reader.pull(0).max_offset
    pages: list[Page] = []

    with ThreadPoolExecutor(1) as threads, group.mq.producer() as producer:
        waiting = threads.submit(seconds_for, lambda: pages.append(reader.pull(end, wait_s=WAIT_S)))
        producer.publish(TOPIC, f"for {name}", queue=1)
        took = waiting.result()

    assert [message.body.decode() for message in pages[0].messages] == [f"for {name}"]
    assert pages[0].node == name
    assert took < WAIT_S / 2


@pytest.mark.parametrize("name", COPIES)
def test_a_long_poll_in_vain_ends_empty_when_its_time_is_over(group: RealGroup, name: str) -> None:
    reader = group.mq.reader(TOPIC, 1, node=name)
    eventually(lambda: reader.pull(0).max_offset == group.mq.reader(TOPIC, 1, node=MASTER).pull(0).max_offset, "both ends are equal")
    end = reader.pull(0).max_offset
    pages: list[Page] = []

    took = seconds_for(lambda: pages.append(reader.pull(end, wait_s=0.3)))

    assert (pages[0].messages, pages[0].next_offset) == ((), end)
    assert took >= 0.3


@pytest.mark.parametrize("name", COPIES)
def test_a_token_is_answered_by_any_copy_once_it_holds_the_message(group: RealGroup, name: str) -> None:
    reader = group.mq.reader(TOPIC, 2, node=name)
    with group.mq.producer() as producer:
        for number in range(20):
            receipt = producer.publish(TOPIC, f"{name} {number}", queue=2)

            page = reader.pull(receipt.queue_offset, wait_s=WAIT_S, at_least=receipt.token)

            assert page.messages[0].body == f"{name} {number}".encode()
            assert page.unconfirmed_from is None


@pytest.mark.parametrize("name", COPIES)
def test_a_token_of_what_no_copy_holds_is_waited_for_and_then_said_so(group: RealGroup, name: str) -> None:
    future = encode_token("a", Epoch(1), PhysicalOffset(group.status().end + 1_000_000))
    reader = group.mq.reader(TOPIC, 2, node=name)

    with pytest.raises(NotReady, match="does not hold yet what the token names"):
        reader.pull(0, wait_s=0.1, at_least=future)


def test_a_token_of_another_group_is_refused(group: RealGroup) -> None:
    with pytest.raises(InvalidField, match="at_least"):
        group.mq.reader(TOPIC, 2).pull(0, at_least=encode_token("b", Epoch(1), PhysicalOffset(1)))


def test_offset_beyond_the_end_is_refused_by_the_master_and_awaited_by_a_slave(group: RealGroup) -> None:
    """The master names the range."""
    end = group.mq.reader(TOPIC, 3, node=MASTER).pull(0).max_offset

    with pytest.raises(OffsetOutOfRange) as refused:
        group.mq.reader(TOPIC, 3, node=MASTER).pull(end + 1)

    assert (refused.value.asked, refused.value.start, refused.value.end) == (end + 1, 0, end)
    page = group.mq.reader(TOPIC, 3, node="a/1").pull(end + 1)
    assert (page.messages, page.next_offset) == ((), end + 1)


def test_a_long_poll_on_a_slave_outlives_its_master(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(1)) as group, group.mq.producer() as producer, ThreadPoolExecutor(1) as threads:
        producer.publish(TOPIC, "before", queue=0)
        group.wait_equal()
        reader = group.mq.reader(TOPIC, 0, node="a/1")
        waiting = threads.submit(reader.pull, 1, wait_s=WAIT_S)

        group.cluster.kill(MASTER)
        eventually(
            lambda: group.status("a/1").waiting_kind in {WaitKind.MASTER, WaitKind.ELECTION}, "the slave knows that its master is gone"
        )
        assert [message.body for message in reader.pull(0).messages] == [b"before"]
        group.cluster.start_node(MASTER)
        group.cluster.wait_in_sync()
        producer.publish(TOPIC, "after", queue=0)

        assert [message.body for message in waiting.result().messages] == [b"after"]


def test_reader_far_behind_reads_from_a_slave_and_otherwise_from_the_master(tmp_path: Path) -> None:
    settings = {"reading.access_message_in_memory_max_ratio": 0}  # far behind is whoever is behind
    with real_group(tmp_path, shape(2, master=settings, slave=settings)) as group:
        with group.mq.producer() as producer:
            producer.publish_many([Message(TOPIC, b"%d" % at, queue=0) for at in range(12)])
        group.wait_equal()
        reader = group.mq.reader(TOPIC, 0, max_messages=4)
        pages = [reader.pull(offset) for offset in (0, 4, 8, 12, 12)]

        assert [page.node for page in pages] == [MASTER, "a/1", "a/1", MASTER, MASTER]
        assert [message.body for page in pages for message in page.messages] == [b"%d" % at for at in range(12)]
