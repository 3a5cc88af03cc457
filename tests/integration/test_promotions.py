"""Promotions that must not be, zombies that must not count, and changes of place in the middle of which somebody dies."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.errors import DittoError
from tests.support.command_line import CommandLine, Ran
from tests.support.harming import harming, preloading
from tests.support.history import History
from tests.support.linked_group import QUICK
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.waiting import eventually

SOME = 40
LEADS = (0, 3)  # 3: another copy is not in sync yet, as it may be on a busy machine
STRICT = {**QUICK, "replication.min_in_sync_replicas": 2}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RealGroup]:
    with real_group(tmp_path, shape(2, master=STRICT, slave=STRICT)) as running:
        yield running


def leader(group: RealGroup) -> str:
    """The node that takes writes, "" while there is none."""
    return next((name for name in group.copies if group.cluster.is_alive(name) and group.writable(name)), "")


def all_in_sync(group: RealGroup) -> None:
    eventually(lambda: (name := leader(group)) and group.leads_all(name), "all copies are in sync")


def test_a_slave_that_lacks_confirmed_messages_is_refused_to_lead_whoever_else_is_away(group: RealGroup, tmp_path: Path) -> None:
    cluster, history, command = group.cluster, History(group), CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver)
    with group.mq.producer(timeout_s=2.0, retry_s=30.0) as producer:
        history.publish(producer, SOME)
        cluster.kill("a/2")
        history.publish(producer, SOME)
        cluster.kill("a/1")
        cluster.kill(MASTER)
        cluster.start_node("a/2")
        eventually(lambda: group.status("a/2").role, "a/2 answers")

        alone = command.run("role", "lead", "a/2", "--old-master-is-stopped")
        assert (alone.code, leader(group)) == (1, "")
        cluster.start_node("a/1")
        eventually(lambda: group.status("a/1").role, "a/1 answers")
        shorter = command.run("role", "lead", "a/2", "--old-master-is-stopped")
        assert (shorter.code, leader(group)) == (1, "")

        longest = command.run("role", "lead", "a/1", "--old-master-is-stopped")
        assert (longest.code in LEADS, longest.out.strip().endswith("may be lost: nothing")) == (True, True), longest
        cluster.start_node(MASTER)
        all_in_sync(group)
        history.publish(producer, SOME)
    history.check()


def test_a_master_that_stood_still_through_a_promotion_comes_back_as_a_slave_by_itself_without_its_late_writes(
    group: RealGroup, tmp_path: Path
) -> None:
    history, command = History(group), CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver)
    with (
        history.reading(group.mq, MASTER),
        history.reading(group.mq, "a/1"),
        history.reading(group.mq, "a/2"),
        group.mq.producer(timeout_s=1.0, retry_s=30.0) as producer,
        history.publishing(producer) as stream,
    ):
        history.wait_for_more(SOME)
        with group.frozen(MASTER):
            given_up = "its slaves have given it up: they get no more of it"
            eventually(lambda: all(group.status(name).nodes[0].state != "following" for name in group.slaves), given_up)
            longest = max(group.slaves, key=lambda name: group.status(name).end)
            promoted = command.run("role", "lead", longest, "--old-master-is-stopped")
            assert promoted.code in LEADS, promoted
            history.wait_for_more(SOME)
        pid = group.cluster.pid(MASTER)
        all_in_sync(group)
        assert leader(group) == longest
        history.wait_for_more(SOME)
    stream.settle()
    assert [event["service"] for event in group.events(MASTER, "comes_back")] == ["slave"]
    assert (group.cluster.pid(MASTER), group.cluster.role(MASTER)) == (pid, "slave")
    history.check()


def test_a_slave_that_is_told_to_lead_alone_leads_and_the_command_says_what_it_lacks_for_writes(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(1, master=STRICT, slave=STRICT)) as group:
        command = CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver)
        group.cluster.kill(MASTER)

        told = command.run("role", "lead", "a/1", "--old-master-is-stopped")

        assert told.code == 3, told
        assert told.out.startswith("a/1 leads since epoch 2 after ")
        few = "a/1 has 1 copy in sync and min_in_sync_replicas demands 2; bring slaves back or lower it"
        assert told.err.endswith(f"\na/1 takes no writes yet: {few}; dittomq ha-status says more\n")
        again = command.run("role", "lead", "a/1")
        assert again.code == 3, again
        assert again.err == f"a/1 takes no writes yet: {few}; dittomq ha-status says more\n"

        address = group.address("a/1")
        group.cluster.kill("nameserver")
        by_address = command.run("role", "lead", address)
        assert (by_address.code, by_address.out) == (3, f"{address} leads since epoch 2; may be lost: nothing\n"), by_address
        group.cluster.start_node("nameserver")
        group.cluster.start_node(MASTER)
        all_in_sync(group)


def promoted(command: CommandLine, name: str) -> None:
    """It leads in the place of one that is stopped. A slave that stands still just then is missed: then it is said again."""

    def tried() -> Ran | None:
        ran = command.run("role", "lead", name, "--old-master-is-stopped")
        return None if "slaves answer that together hold" in ran.err else ran

    ran = eventually(tried, "enough slaves answer")
    assert ran is not None
    assert ran.code in LEADS, ran


@pytest.mark.parametrize("next_one", ["a/0", "a/2"], ids=["the first one again", "the third one"])
def test_two_masters_are_killed_one_after_the_other_and_no_copy_lacks_what_was_acknowledged_by_either(
    group: RealGroup, tmp_path: Path, next_one: str
) -> None:
    cluster, history, command = group.cluster, History(group), CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver)
    behind = {"a/0": "a/2", "a/2": "a/0"}[next_one]
    with (
        history.reading(group.mq, "a/2"),
        group.mq.producer(timeout_s=2.0, retry_s=60.0) as producer,
        group.mq.producer(timeout_s=2.0, retry_s=60.0) as another,
        history.publishing(producer) as single,
        history.publishing(another, burst=200) as many,
    ):
        history.wait_for_more(SOME)
        with group.frozen("a/2"):  # it has less than a/1
            history.wait_for_more(SOME)
            cluster.kill(MASTER)
        promoted(command, "a/1")
        cluster.start_node(MASTER)
        eventually(lambda: group.leads_all("a/1"), "both others follow the second one")
        with group.frozen(behind):
            history.wait_for_more(SOME)
            cluster.kill("a/1")
        promoted(command, next_one)
        cluster.start_node("a/1")
        eventually(lambda: group.leads_all(next_one), "both others follow the third one")
        history.wait_for_more(SOME)
    for stream in (single, many):
        stream.settle()
    assert [group.events(name, "comes_back")[-1]["service"] for name in ("a/1", next_one)] == ["slave", "master"]
    opened = [entry["epoch"] for name in (MASTER, "a/1", next_one) for entry in group.events(name, "epoch_opened")]
    assert len(set(opened)) == 3, "an epoch has one master"
    history.check()


@pytest.mark.parametrize("dies", ["the old master", "the new master"])
def test_whoever_dies_in_the_middle_of_a_change_of_place_one_leads_in_the_end_and_nothing_is_lost(
    group: RealGroup, shim: Path, tmp_path: Path, dies: str
) -> None:
    cluster, history = group.cluster, History(group)
    with group.mq.producer(timeout_s=2.0, retry_s=60.0) as producer, history.publishing(producer) as stream:
        for nth in (1, 3):
            old = leader(group)
            new = next(name for name in group.copies if name not in {old, "a/2"})
            victim, switch = (old if dies == "the old master" else new), tmp_path / f"{nth}"
            cluster.stop_node(victim)
            with preloading(shim, harming(cluster.data_dir(victim) / "dittomq", when=switch, calls="rename", nth=nth, kind="kill")):
                cluster.start_node(victim)
            all_in_sync(group)
            old = leader(group)
            new = next(name for name in group.copies if name not in {old, "a/2"})
            history.wait_for_more(SOME)
            switch.touch()
            try:
                group.mq.admin.change_role(new)
            except DittoError as told:
                print(f"{nth}: {told}")
            eventually(lambda victim=victim: not cluster.is_alive(victim), f"{victim} dies")  # type: ignore[misc]
            switch.unlink()
            cluster.start()
            try:
                eventually(lambda: leader(group), "one of them leads by itself", within_s=5)
            except AssertionError:  # then the operator says it again
                eventually(lambda new=new: leader(group) or group.mq.admin.change_role(new), "somebody leads")  # type: ignore[misc]
            all_in_sync(group)
            history.wait_for_more(SOME)
    stream.settle()
    history.check()


def test_of_two_masters_of_one_epoch_the_one_that_waits_follows_by_command_and_the_group_takes_writes_again(tmp_path: Path) -> None:
    """Nothing fences a master that was promoted where nobody else could hear of it: here the only nameserver lost its disk."""
    forgetful = {"registry.broker_expiry_ms": 3_000}
    with real_group(tmp_path, shape(1, master=QUICK, slave=QUICK, nameserver=forgetful)) as group:
        cluster, history, command = group.cluster, History(group), CommandLine(tmp_path, DITTOMQ_NAMESERVER=group.cluster.nameserver)
        with group.mq.producer(timeout_s=2.0, retry_s=30.0) as producer:
            history.publish(producer, SOME)
            cluster.kill(MASTER)
            assert command.run("role", "lead", "a/1", "--old-master-is-stopped").code == 0
            cluster.stop_node("a/1")
            cluster.kill("nameserver")
            shutil.rmtree(cluster.data_dir("nameserver"))
            cluster.start_node("nameserver")
            cluster.start_node(MASTER)
            eventually(
                lambda: group.mq.admin.get_broker(group.address(MASTER)).state == "leading", "the old master leads its slaveless group"
            )
            assert group.status(MASTER).epoch == 2
            cluster.start_node("a/1")
            eventually(lambda: "its id" in group.status("a/1").waiting_for, "the promoted one waits for its id")

            refused = command.run("role", "follow", MASTER)
            assert (refused.code, "leads; say who is to lead instead" in refused.err) == (1, True), refused
            followed = command.run("role", "follow", group.address("a/1"))
            assert (followed.code, followed.out) == (0, f"{group.address('a/1')} follows; the newest epoch that it knows of is 2\n"), (
                followed
            )

            all_in_sync(group)
            assert leader(group) == MASTER
            history.publish(producer, SOME)
        history.check()
