"""The master's data directory is gone: what the slaves hold is the group's, and it comes back from them."""

import shutil
from collections.abc import Iterator

import pytest

from tests.support.command_line import CommandLine
from tests.support.real_group import MASTER, TOPIC, UNWRITTEN, RealGroup, real_group
from tests.support.told import wrong_copies, wrong_reads
from tests.support.traffic import Publishing, messages, read_all
from tests.support.waiting import PATIENCE_S, eventually

COUNT = 4_000


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    with real_group(tmp_path_factory.mktemp("lost")) as running:
        yield running


def published(group: RealGroup, first: int = 0, count: int = COUNT) -> Publishing:
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        publishing = Publishing(producer)
        assert len(publishing.publish(messages(first, count, size=200))) == count
    return publishing


def empty_master(group: RealGroup) -> None:
    shutil.rmtree(group.cluster.data_dir(MASTER))
    group.cluster.start_node(MASTER)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_an_empty_master_among_full_slaves_copies_log_and_topics_from_them_first(group: RealGroup, killed: bool) -> None:
    told = published(group).told
    end = group.wait_equal()
    if killed:
        group.cluster.kill(MASTER)
    else:
        group.cluster.stop_node(MASTER)

    empty_master(group)
    group.cluster.wait_in_sync()

    assert group.events(MASTER, "store_opened")[-1]["stopped"] == "empty"
    assert group.status().epoch >= 2
    assert group.topics(MASTER) == [TOPIC, UNWRITTEN]
    for name in group.copies:
        assert list(wrong_reads(told, read_all(group.mq, name)))[:3] == []
        assert group.events(name, "log_cut") == []
    published(group, first=COUNT, count=100)
    assert group.wait_equal() > end
    assert list(wrong_copies(group.logs(), end)) == []
    assert group.topics("a/1") == [TOPIC, UNWRITTEN]


def test_an_empty_master_that_misses_a_slave_waits_until_an_operator_accepts_the_loss(
    group: RealGroup, tmp_path_factory: pytest.TempPathFactory
) -> None:
    command = CommandLine(tmp_path_factory.mktemp("cli"))
    told = published(group).told
    end = group.wait_equal()
    group.cluster.stop_node(MASTER)
    group.cluster.stop_node("a/2")

    empty_master(group)
    waits = "1 more of 2 slaves: this store is empty and a slave has data"
    eventually(lambda: waits in group.status().waiting_for, "the master says what it waits for")
    refused = command.run("role", "lead", "a/0", "--nameserver", group.cluster.nameserver)
    assert (refused.code, waits in refused.one_sentence()) == (1, True)
    assert group.writable() is False

    accepted = command.run("role", "lead", "a/0", "--accept-loss", "--nameserver", group.cluster.nameserver)
    assert accepted.code == 0
    assert accepted.out.startswith("a/0 leads since epoch 2; may be lost: what only slaves hold that are not heard: ")
    eventually(lambda: not list(wrong_reads(told, read_all(group.mq, MASTER)))[:3], "it serves all that it has")

    group.cluster.start_node("a/2")
    group.cluster.wait_in_sync()
    group.wait_equal()
    assert list(wrong_copies(group.logs(), end)) == []
    assert group.events("a/2", "log_cut") == []
