"""One attempt of one candidate, step by step."""

from dataclasses import replace
from typing import Any

import pytest

from dittomq.doors.coordination import Conflict, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.group_record import GroupRecord, Member
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication import election_events
from dittomq.replication.election import Election, may_stand
from dittomq.replication.election_events import (
    Answered,
    AskMembers,
    AskPromises,
    BecomeMaster,
    ElectionTick,
    EndElection,
    PromiseAnswered,
    PromiseSelf,
    PromiseUnanswered,
    ReadRecord,
    RecordRead,
    SentBy,
    StandOrder,
    StoreSilent,
    TailFailed,
    TailTaken,
    TakeTail,
    Target,
    Unanswered,
    WriteEnded,
    WriteRecord,
)
from dittomq.replication.election_states import ELECTION_MOVES, Attempt
from tests.support.candidacy import BY_ITSELF, SENT, THREE, Candidacy, position, rules_of
from tests.support.confirming_group import member_of, record_of, replica_of

A, B, C = position("a/0"), position("a/1"), position("a/2")


def writing(**changes: Any) -> Candidacy:
    """a/1 has promises of itself and a/2, and has sent its record."""
    candidacy = Candidacy(**changes)
    candidacy.asked(C, silent=("a/0",))
    candidacy.promised(C)
    return candidacy


def test_the_table_has_a_row_for_each_state_and_each_event() -> None:
    taken = {kind for row in ELECTION_MOVES.rows.values() for kind in row}

    assert taken == set(election_events.Event.__args__)
    assert set(Attempt) - set(ELECTION_MOVES.rows) == {Attempt.ELECTED, Attempt.ENDED}


def test_a_replica_of_another_birth_keeps_nobody_from_leading_with_data_loss() -> None:
    candidacy = Candidacy(order=StandOrder(SentBy.OPERATOR, allow_data_loss=True))
    candidacy.asked(replace(A, birth="another"), silent=("a/2",))
    candidacy.promised_itself()
    candidacy.take(WriteEnded(Written("v2")))

    elected = candidacy.must(BecomeMaster).elected
    assert elected.record.members == (member_of("a/1"),)
    assert elected.silent == ("a/0", "a/2")


def test_an_election_reads_asks_promises_writes_and_leads() -> None:
    candidacy = Candidacy()

    assert candidacy.said == [AskMembers((Target("a/0", "a-0:10912"), Target("a/2", "a-2:10912")), SentBy.NOBODY)]
    assert candidacy.asked(C, silent=("a/0",)) == [PromiseSelf(Epoch(2), "birth")]
    assert candidacy.promised_itself() == [AskPromises(Epoch(2), "birth", (Target("a/2", "a-2:10912"),), SentBy.NOBODY)]
    record = THREE.next("w", epoch=Epoch(2), master=replica_of("a/1"))
    assert candidacy.take(PromiseAnswered(replace(C, promised=Epoch(2)), True)) == [WriteRecord(record, Versioned(THREE, "v1"))]
    candidacy.take(WriteEnded(Written("v2")), at=0.4)
    elected = candidacy.must(BecomeMaster).elected
    assert (elected.record, elected.version, elected.log_end, elected.silent, elected.data_loss) == (record, "v2", 100, ("a/0",), None)
    assert elected.took_s == 0.4


def test_a_quorum_waits_a_moment_for_the_other_answers() -> None:
    candidacy = Candidacy()

    assert candidacy.asked(C) == []
    assert candidacy.take(ElectionTick(), at=0.19) == []
    assert candidacy.take(ElectionTick(), at=0.2) == [PromiseSelf(Epoch(2), "birth")]


def test_a_candidate_that_dropped_a_torn_tail_waits_for_every_member() -> None:
    candidacy = Candidacy(own=replace(B, dropped_torn_tail=True))

    assert candidacy.asked(C, silent=("a/0",)) == []
    assert candidacy.take(ElectionTick(), at=0.5) == [ReadRecord()]
    candidacy.take(RecordRead(Versioned(THREE, "v1")), at=3.0)
    assert candidacy.asked(C, silent=("a/0",)) == [PromiseSelf(Epoch(2), "birth")]


def test_too_few_answers_end_an_election() -> None:
    candidacy = Candidacy(record=record_of("a/1", "a/2", copies=1))

    candidacy.asked(C, silent=("a/0",))

    assert candidacy.reason == "too_few"
    assert "a/0 did not" in str(candidacy.must(EndElection).reason)


def test_a_member_that_hears_its_master_ends_an_election_without_a_quorum() -> None:
    candidacy = Candidacy()

    candidacy.take(Answered(replace(C, sees_master=True), False), Unanswered("a/0"))

    assert candidacy.reason == "refused"


def test_a_refused_promise_ends_an_election_and_the_next_one_asks_for_more() -> None:
    candidacy = Candidacy()
    candidacy.asked(C, silent=("a/0",))
    candidacy.promised_itself()

    candidacy.take(PromiseAnswered(replace(C, promised=Epoch(5)), False))

    assert candidacy.reason == "overtaken"


def test_promises_that_do_not_come_end_an_election() -> None:
    candidacy = Candidacy()
    candidacy.asked(C, silent=("a/0",))
    candidacy.promised_itself()

    candidacy.take(PromiseUnanswered("a/2"))

    assert candidacy.reason == "too_few"


def test_a_candidate_that_then_promised_another_one_ends_its_election() -> None:
    candidacy = Candidacy()
    candidacy.asked(C, silent=("a/0",))
    candidacy.own = replace(candidacy.own, promised=Epoch(9))

    candidacy.take(election_events.SelfPromised(candidacy.own))

    assert candidacy.reason == "overtaken"


def test_a_tail_that_was_not_taken_ends_an_election() -> None:
    candidacy = Candidacy(order=SENT)
    candidacy.asked(replace(C, log_end=PhysicalOffset(120)), silent=("a/0",))
    candidacy.promised(replace(C, log_end=PhysicalOffset(120)))

    assert candidacy.must(TakeTail).source.node == "a/2"
    candidacy.take(TailFailed("out of reach"))

    assert candidacy.reason == "log_tail_not_fetched"


def test_late_answers_change_nothing() -> None:
    candidacy = writing()

    assert candidacy.take(Answered(A, True)) == []
    assert candidacy.take(PromiseAnswered(replace(A, log_end=PhysicalOffset(500)), True)) == []


def test_an_election_without_the_store_ends() -> None:
    election = Election(rules_of("a/1"), B, BY_ITSELF, (), birth="b", write="w", now=0.0)

    [read] = election.begin()
    [end] = election.handle(StoreSilent("no answer"), 0.0)

    assert (read, isinstance(end, EndElection)) == (ReadRecord(), True)


def test_an_election_of_a_replica_that_is_no_member_ends() -> None:
    assert Candidacy(record=record_of("a/2")).reason == "not_member"


# The write


def test_an_unknown_write_is_sent_again_unchanged() -> None:
    candidacy = writing()
    sent = candidacy.must(WriteRecord)

    assert candidacy.take(WriteEnded(WriteUnknown("no answer"))) == []
    assert candidacy.take(ElectionTick(), at=0.2) == [sent]
    candidacy.take(WriteEnded(Written("v2")))

    assert candidacy.must(BecomeMaster).elected.version == "v2"


def test_a_store_that_stays_silent_ends_an_election_that_claims_nothing() -> None:
    candidacy = writing()

    candidacy.take(WriteEnded(WriteUnknown("no answer")))
    candidacy.take(ElectionTick(), at=1.0)
    candidacy.take(StoreSilent("no answer"))
    candidacy.take(ElectionTick(), at=4.0)

    assert candidacy.reason == "store_silent"


def test_a_write_that_was_never_sent_ends_an_election() -> None:
    candidacy = writing()

    candidacy.take(StoreSilent("no answer"))

    assert candidacy.reason == "store_silent"


def test_a_conflict_with_another_candidate_ends_an_election_for_a_random_moment() -> None:
    candidacy = writing()

    assert candidacy.take(WriteEnded(Conflict())) == [ReadRecord()]
    candidacy.take(RecordRead(Versioned(THREE.next("x", epoch=Epoch(2), master=replica_of("a/2")), "v2")))

    ended = candidacy.must(EndElection)
    assert (candidacy.reason, ended.retry_after_s, ended.retry_spread_s) == ("conflict", 0.1, 0.4)


def test_an_own_write_that_an_operator_then_paused_still_elects() -> None:
    candidacy = writing()
    paused = candidacy.must(WriteRecord).record.next("operator", paused=True)

    candidacy.take(WriteEnded(WriteUnknown("")))
    candidacy.take(ElectionTick(), at=1.0)
    candidacy.take(WriteEnded(Conflict()))
    candidacy.take(RecordRead(Versioned(paused, "v3")))

    assert candidacy.must(BecomeMaster).elected.record == paused


@pytest.mark.parametrize("outcome", [WriteUnknown(""), Conflict()])
def test_the_old_version_leaves_a_write_in_doubt(outcome: WriteOutcome) -> None:
    candidacy = writing()

    candidacy.take(WriteEnded(outcome))
    if isinstance(outcome, WriteUnknown):
        candidacy.take(ElectionTick(), at=1.0)
        candidacy.take(WriteEnded(Conflict()))
    candidacy.take(RecordRead(Versioned(THREE, "v1")))

    assert candidacy.election.state is Attempt.IN_DOUBT


# Which log


def test_the_confirmed_offset_is_the_greatest_that_a_promising_replica_knows() -> None:
    candidacy = Candidacy(order=SENT)
    candidacy.asked(C, silent=("a/0",))
    candidacy.promised(replace(C, confirmed=PhysicalOffset(90)))

    candidacy.take(WriteEnded(Written("v2")))

    assert candidacy.must(BecomeMaster).elected.confirmed == 90


def test_the_new_master_writes_the_address_where_it_is_now() -> None:
    candidacy = Candidacy(own=replace(B, address="elsewhere:1"))
    candidacy.asked(C, silent=("a/0",))
    candidacy.promised(C)

    moved = Member("a/1", replica_of("a/1"), "elsewhere:1")
    assert candidacy.must(WriteRecord).record.members == (member_of("a/0"), moved, member_of("a/2"))


# Without a record


def creating(**changes: Any) -> Candidacy:
    changes = {"own": replace(B, birth=""), "record": None, "nodes": ("a/0", "a/1", "a/2"), **changes}
    return Candidacy(**changes)


def test_the_best_log_of_all_creates_a_record_of_itself() -> None:
    candidacy = creating()

    candidacy.asked(replace(A, promised=Epoch(4), adopted=Epoch(0), revision=9), replace(C, log_end=PhysicalOffset(0)))
    assert candidacy.said == [PromiseSelf(Epoch(5), "")]
    candidacy.promised(replace(A, adopted=Epoch(0), revision=9), replace(C, log_end=PhysicalOffset(0)))

    myself = (member_of("a/1"),)
    record = GroupRecord("new birth", Epoch(5), 10, replica_of("a/1"), myself, copies=2, write="w")
    assert candidacy.said == [WriteRecord(record, None)]


def test_an_operator_creates_a_record_without_those_that_are_missing() -> None:
    candidacy = creating(order=StandOrder(SentBy.OPERATOR, allow_data_loss=True))

    candidacy.asked(C, silent=("a/0",))
    candidacy.promised(C)
    candidacy.take(WriteEnded(Written("v1")))

    assert "a/0" in str(candidacy.must(BecomeMaster).elected.data_loss)


def test_one_disk_under_two_names_counts_once_where_a_record_is_created() -> None:
    candidacy = creating()

    candidacy.asked(A, replace(C, replica=A.replica))

    assert candidacy.reason == "too_few_to_create"


# Who may stand


@pytest.mark.parametrize(
    ("own", "record", "kind"),
    [
        (B, None, None),
        (B, THREE, None),
        (replace(B, leads=True), THREE, "leads"),
        (replace(B, birth="other"), THREE, "other_birth"),
        (replace(B, revision=2), THREE, "store_restored"),
        (B, record_of("a/2"), "not_member"),
        (position("a/1", incarnation=2), THREE, None),  # what became of a member: the election finds out whether that is enough
        (B, replace(THREE, paused=True), "paused"),
    ],
)
def test_a_replica_stands_or_says_why_not(own: Any, record: GroupRecord | None, kind: str | None) -> None:
    reason = may_stand(rules_of("a/1"), own, record, BY_ITSELF, master_is_silent=True)

    assert (None if reason is None else reason.kind.value) == kind


def test_a_replica_that_hears_its_master_is_a_candidate_only_if_it_is_sent() -> None:
    found = [may_stand(rules_of("a/1"), B, THREE, StandOrder(sent_by), master_is_silent=False) for sent_by in SentBy]

    assert [str(each) for each in found] == ["this replica hears its master a/0", "None", "None"]


def test_a_tail_of_another_end_than_the_winners_is_not_led_with() -> None:
    longer = replace(C, log_end=PhysicalOffset(120))
    candidacy = Candidacy(order=SENT)
    candidacy.asked(longer, silent=("a/0",))
    candidacy.promised(longer)

    candidacy.take(TailTaken(replace(candidacy.own, log_end=PhysicalOffset(110))))

    assert candidacy.reason == "log_tail_not_fetched"
