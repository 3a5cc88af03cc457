"""How a master writes the group record: one write at a time, and both sets of members confirm until the outcome is known."""

from dataclasses import replace
from random import Random

import pytest

from dittomq.doors.coordination import Conflict, Unknown, Versioned, Written
from dittomq.group_record import ReplicaId
from dittomq.offsets import Epoch
from dittomq.replication.membership import MemberChange, WriteRefusalKind
from dittomq.replication.membership_states import RecordWrite
from tests.support.chances import replayable
from tests.support.confirming import ALONE, MASTER, RULES, ConfirmingGroup, caught_up, decided, must, nodes, record_of, replica_of

NOT_SENT = None


def test_one_write_begins_in_a_second() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/2", said_goodbye=True, now=0.0)
    must(group, 0.0)
    group.membership.write_ended(Written("v2"), 0.1)
    group.confirmed.stream_ended("a/1", said_goodbye=True, now=0.1)

    assert decided(group, 0.9) is None
    assert nodes(must(group, 1.0)) == []


def test_no_other_write_begins_while_one_is_under_way() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/2", said_goodbye=True, now=0.0)
    must(group, 0.0)
    group.confirmed.stream_ended("a/1", said_goodbye=True, now=0.1)

    assert decided(group, 5.0) is None


def test_an_unknown_write_is_sent_again_unchanged_and_both_sets_confirm() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/2", said_goodbye=True, now=0.0)
    first = must(group, 0.0)
    group.membership.write_ended(Unknown("no answer"), 0.1)

    group.membership.record_read(Versioned(group.record, "v1"), 0.2)
    too_early = decided(group, 0.9)
    again = must(group, 1.0)

    assert (too_early, again) == (None, first)
    assert group.membership.should_read(1.0) is False
    group.membership.write_ended(Written("v2"), 1.1)
    assert group.membership.known == Versioned(first.record, "v2")


def test_a_read_of_the_old_version_proves_nothing() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/1", said_goodbye=True, now=0.0)
    must(group, 0.0)
    group.membership.write_ended(Unknown("no answer"), 0.1)
    group.membership.record_read(Versioned(group.record, "v1"), 0.2)
    group.slave("a/1", 100, now=0.3)
    group.master(200, now=0.3)

    group.slave("a/1", 200, now=0.4)

    assert group.confirmed.confirmed == 100  # a/1 is no member of what may still arrive
    assert group.membership.should_read(0.5)


def test_a_later_revision_of_this_master_ends_a_doubt() -> None:
    for arrived in (True, False):
        group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
        group.confirmed.stream_ended("a/2", said_goodbye=True, now=0.0)
        change = must(group, 0.0)
        group.membership.write_ended(Conflict(), 0.1)

        record = change.record if arrived else group.record.next("an operator's", paused=True)
        group.membership.record_read(Versioned(record, "v7"), 0.2)

        assert group.membership.known == Versioned(record, "v7")
        assert group.membership.state is RecordWrite.SETTLED
        assert group.confirmed.record == record
        assert (group.membership.why_left("a/2") is not None) == arrived


def test_a_conflict_alone_deposes_no_master() -> None:
    group = caught_up("a/1")
    must(group, 0.0)

    group.membership.write_ended(Conflict(), 0.1)

    assert group.membership.state is RecordWrite.IN_DOUBT
    assert group.membership.should_read(0.1)
    assert group.membership.writes_refused(0.1) is None


def test_a_write_that_was_never_sent_leaves_no_doubt() -> None:
    group = caught_up("a/1")
    must(group, 0.0)

    group.membership.write_ended(NOT_SENT, 0.1)
    group.master(200, now=0.2)

    assert group.membership.state is RecordWrite.SETTLED
    assert group.confirmed.confirmed == 200


def test_a_second_try_that_was_never_sent_leaves_the_doubt_of_the_first() -> None:
    group = caught_up("a/1")
    must(group, 0.0)
    group.membership.write_ended(Unknown("no answer"), 0.1)
    must(group, 1.0)

    group.membership.write_ended(NOT_SENT, 1.1)
    group.master(200, now=1.2)

    assert group.membership.state is RecordWrite.IN_DOUBT
    assert group.confirmed.confirmed == 100


def test_a_later_revision_that_is_read_during_a_write_counts_when_that_ends() -> None:
    group = caught_up("a/1")
    change = must(group, 0.0)
    paused = change.record.next("an operator's", paused=True)

    group.membership.record_read(Versioned(paused, "v3"), 0.1)
    during = group.membership.known
    group.membership.write_ended(Written("v2"), 0.2)

    assert during == Versioned(ALONE, "v1")
    assert group.membership.known == Versioned(paused, "v3")


def test_a_read_that_is_older_than_what_is_known_changes_nothing() -> None:
    group = caught_up("a/1")
    change = must(group, 0.0)
    group.membership.write_ended(Written("v2"), 0.1)

    group.membership.record_read(Versioned(ALONE, "v1"), 0.2)

    assert group.membership.known == Versioned(change.record, "v2")
    assert group.confirmed.members == (MASTER, "a/1")


def test_a_version_that_moved_without_a_new_revision_is_written_over() -> None:
    group = caught_up("a/1")

    group.membership.record_read(Versioned(ALONE, "v1 touched"), 0.0)

    assert must(group, 0.1).expected.version == "v1 touched"


@pytest.mark.parametrize(
    "changes", [{"epoch": Epoch(2)}, {"birth": "another"}, {"master": replica_of("a/1"), "members": record_of("a/1").members}]
)
def test_another_epoch_birth_or_master_fences(changes: dict[str, object]) -> None:
    group = caught_up("a/1")
    must(group, 0.0)

    group.membership.record_read(Versioned(ALONE.next("w2", **changes), "v9"), 0.1)
    group.membership.write_ended(Conflict(), 0.2)
    refusal = group.membership.writes_refused(0.3)

    assert group.membership.state is RecordWrite.FENCED
    assert refusal is not None
    assert refusal.kind is WriteRefusalKind.FENCED
    assert decided(group, 5.0) is None


def test_a_missing_record_fences_no_master() -> None:
    group = caught_up("a/1")

    group.membership.record_read(None, 0.0)

    assert group.membership.state is RecordWrite.SETTLED


class World:
    """A store whose writes are lost, late or unknown, a master of epoch 1, and what its slaves really hold."""

    def __init__(self, chance: Random, copies: int, minimum: int) -> None:
        self.chance = chance
        rules = replace(RULES, copies=copies, level_copies=copies, min_in_sync_replicas=minimum, replicas_expected=3)
        names = self.chance.sample(["a/1", "a/2", "a/3"], self.chance.randint(0, 3))
        self.group = ConfirmingGroup(rules, record=record_of(*names, copies=self.chance.randint(1, 3)))
        self.stored = Versioned(self.group.record, "v1")
        self.late: list[MemberChange] = []
        self.held: dict[ReplicaId, int] = {replica_of(MASTER): 0}
        self.incarnations = dict.fromkeys(("a/1", "a/2", "a/3"), 1)
        self.now, self.end, self.writes = 0.0, 0, 1

    def step(self) -> None:
        self.now += self.chance.choice((0.01, 0.1, 0.6))
        node = self.chance.choice(list(self.incarnations))
        self.chance.choice(
            (self.append, self.ack, self.ack, self.ack, self.leave, self.lose, self.decide, self.decide, self.arrive, self.read)
        )(node)
        self.check()

    def append(self, _: str) -> None:
        self.end += 10
        self.held[replica_of(MASTER)] = self.end
        self.group.master(self.end, now=self.now)

    def ack(self, node: str) -> None:
        replica = replica_of(node, self.incarnations[node])
        self.held[replica] = self.chance.randint(self.held.get(replica, 0), self.end)
        self.group.slave(node, self.held[replica], incarnation=self.incarnations[node], now=self.now, adopted=self.chance.random() < 0.9)

    def leave(self, node: str) -> None:
        self.group.confirmed.stream_ended(node, said_goodbye=self.chance.random() < 0.5, now=self.now)

    def lose(self, node: str) -> None:
        if self.chance.random() < 0.2:
            self.group.confirmed.stream_ended(node, said_goodbye=False, now=self.now)
            self.incarnations[node] += 1

    def decide(self, _: str) -> None:
        self.writes += 1
        change = decided(self.group, self.now, f"w{self.writes}")
        if change is None:
            return
        match self.chance.randint(0, 4):
            case 0:
                self.group.membership.write_ended(NOT_SENT, self.now)
            case 1:
                self.late.append(change)
                self.group.membership.write_ended(Unknown("late"), self.now)
            case 2:
                self.put(change)
                self.group.membership.write_ended(Unknown("no answer"), self.now)
            case _:
                done = self.put(change)
                self.group.membership.write_ended(Written(self.stored.version) if done else Conflict(), self.now)

    def arrive(self, _: str) -> None:
        if self.late:
            self.put(self.late.pop(self.chance.randrange(len(self.late))))

    def read(self, _: str) -> None:
        if self.chance.random() < 0.2:
            self.stored = Versioned(self.stored.record.next("an operator's", paused=True), self.stored.version + "p")
        if self.group.membership.state is not RecordWrite.SETTLED or self.chance.random() < 0.5:
            self.group.membership.record_read(self.stored, self.now)

    def put(self, change: MemberChange) -> bool:
        if change.expected != self.stored:
            return False
        self.stored = Versioned(change.record, f"v{change.record.revision}")
        return True

    def check(self) -> None:
        record, confirmed = self.stored.record, self.group.confirmed.confirmed
        holding = [each for each in record.ids if self.held.get(each, 0) >= confirmed]
        assert len(holding) >= record.needed, f"{confirmed} is confirmed, and {holding} hold it of {record}"
        assert self.group.membership.state is not RecordWrite.FENCED


@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("minimum", [1, 2])
def test_what_was_ever_confirmed_is_held_by_enough_members_of_the_record(copies: int, minimum: int) -> None:
    chance, moved = replayable(), 0
    for _ in range(60):
        world = World(chance, copies, minimum)
        for _ in range(300):
            world.step()
        moved += world.stored.record.revision > 5 and world.group.confirmed.confirmed > 100
    assert moved > 20  # the world changes members, and confirms
