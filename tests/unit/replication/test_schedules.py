"""Orders of events that broke earlier drafts, as far as one decider answers them. tests/explore/README.md says where the others are.

The comment in each test names the rule without which it fails.
"""

from dataclasses import replace

from dittomq.doors.coordination import Conflict, Versioned, WriteUnknown, Written
from dittomq.message import Ack
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.election import may_stand, winner_of
from dittomq.replication.election_events import (
    Answered,
    AskMembers,
    BecomeMaster,
    ElectionTick,
    PromiseAnswered,
    PromiseSelf,
    RecordRead,
    SentBy,
    StandOrder,
    TailTaken,
    TakeTail,
    WriteEnded,
    WriteRecord,
)
from dittomq.replication.election_states import Attempt
from dittomq.replication.membership import MemberReasonKind, WriteRefusalKind
from dittomq.replication.membership_states import RecordWrite
from dittomq.replication.promise import PromiseRequest, decide_ask, decide_promise
from tests.support.candidacy import BY_ITSELF, ONE_COPY, SENT, THREE, Candidacy, position, rules_of, versioned
from tests.support.confirming_group import RULES, ConfirmingGroup, caught_up, decided, member_of, must, nodes, record_of, replica_of

A, B, C = position("a/0"), position("a/1"), position("a/2")
LOSS = StandOrder(SentBy.OPERATOR, allow_data_loss=True)


def end(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def test_schedule_01_an_ack_before_adopting_confirms_nothing() -> None:
    # Rule: only members that have adopted the epoch confirm.
    group = ConfirmingGroup(record=THREE, end=100)
    group.slave("a/1", 100, adopted=False)

    before = group.confirmed.confirmed
    group.slave("a/1", 100)

    assert (before, group.confirmed.confirmed) == (0, 100)


def test_schedule_02_the_old_version_does_not_end_a_doubt() -> None:
    # Rule: reading the old version proves nothing; both records are satisfied until the outcome is known.
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.membership.must_leave(replica_of("a/2"))
    change = must(group, 1.0)

    group.membership.write_ended(WriteUnknown("no answer"), 1.1)
    group.membership.record_read(Versioned(THREE, "v1"), 1.2)
    group.master(200)
    group.slave("a/2", 200)

    assert (group.membership.state, group.confirmed.confirmed) == (RecordWrite.IN_DOUBT, 100)
    assert decided(group, 2.1) == change


def test_schedule_03_a_holder_has_adopted_the_epoch() -> None:
    # Rule: a holder has adopted the epoch; what a new master knows to be confirmed is too low to go by.
    group = ConfirmingGroup(record=THREE, end=100, confirmed=0)
    group.slave("a/2", 0, adopted=False)
    group.membership.must_leave(replica_of("a/1"))

    assert decided(group, 1.0) is None


def test_schedule_04_a_tail_without_its_adopted_epoch_is_not_led_with() -> None:
    # Rule: the winner is the best of all answers, and the candidate takes over its adopted epoch.
    newer = replace(A, adopted=Epoch(2), log_end=end(10))
    candidacy = Candidacy(order=SENT)
    candidacy.asked(newer, C)
    candidacy.promised(newer, C)

    assert candidacy.must(TakeTail).source.node == "a/0"
    candidacy.take(TailTaken(replace(candidacy.own, log_end=end(10))))

    assert candidacy.reason == "log_tail_not_fetched"
    assert winner_of([B, C, newer], B) == newer


def test_schedule_05_a_copied_disk_counts_under_the_recorded_node_only() -> None:
    # Rule: an id counts only under the node name that the record gives it.
    clone = replace(position("a/9"), replica=C.replica)

    assert str(may_stand(rules_of("a/9"), clone, THREE, BY_ITSELF, master_is_silent=True)).startswith("this replica is not a member")
    candidacy = Candidacy()
    candidacy.take(Answered(clone, True))
    candidacy.asked(silent=("a/0", "a/2"))
    assert candidacy.reason == "too_few"


def test_schedule_05_no_log_leads_that_is_shorter_than_what_is_known_to_be_confirmed() -> None:
    # Rule: the tripwire; an operator decides.
    knowing = replace(C, adopted=Epoch(0), confirmed=end(101))
    found = []
    for order in (SENT, LOSS):
        candidacy = Candidacy(order=order)
        candidacy.asked(knowing, silent=("a/0",))
        candidacy.promised(knowing)
        found.append(type(candidacy.said[0]))
        if order is SENT:
            assert candidacy.reason == "confirmed_missing"

    assert found[1] is WriteRecord


def test_schedule_06_a_record_of_another_birth_is_not_obeyed() -> None:
    # Rule: a replica keeps its birth, and obeys nothing of another one.
    other = replace(THREE, birth="another")

    reason = may_stand(rules_of("a/1"), B, other, BY_ITSELF, master_is_silent=True)
    request = PromiseRequest("a/2", C.replica, Epoch(5), "another", SentBy.OPERATOR)

    assert reason is not None
    assert reason.kind.value == "other_birth"
    assert not decide_promise(B, request)


def test_schedule_06_a_record_is_created_only_if_every_replica_promises() -> None:
    # Rule: all replicas promise before a record is created.
    candidacy = Candidacy(record=None, nodes=("a/0", "a/2"))

    candidacy.asked(C, silent=("a/0",))

    assert candidacy.reason == "too_few_to_create"


def test_schedule_06_a_record_older_than_one_that_a_replica_has_read_is_refused() -> None:
    # Rule: a record below the greatest revision that a replica knows is refused.
    candidacy = Candidacy()

    candidacy.asked(replace(C, revision=7), silent=("a/0",))

    assert candidacy.reason == "store_restored"


def test_schedule_08_an_election_with_loss_names_who_did_not_answer() -> None:
    # Rule: nothing fences those that did not answer; the operator is told who they are.
    candidacy = Candidacy(order=LOSS, record=ONE_COPY)
    candidacy.asked(C, silent=("a/0",))
    candidacy.promised(C)

    candidacy.take(WriteEnded(Written("v2")))

    elected = candidacy.must(BecomeMaster).elected
    assert (elected.record.members, elected.silent) == ((member_of("a/1"),), ("a/0",))
    assert "a/0 did not answer" in str(elected.data_loss)


def test_schedule_08_an_unclean_election_waits_until_the_old_master_refuses_writes() -> None:
    # Rule: with failover.allow_data_loss a candidate waits as long as a master without the store takes writes.
    candidacy = Candidacy(record=ONE_COPY, allow_data_loss=True)
    group = ConfirmingGroup(replace(RULES, copies=1, level_copies=1, store_required=True), record=ONE_COPY)

    candidacy.asked(C, silent=("a/0",))
    for at in (0.5, 1.0, 1.5, 2.0, 2.5):
        candidacy.take(ElectionTick(), at=at)
        candidacy.take(RecordRead(versioned(ONE_COPY)))
        candidacy.asked(C, silent=("a/0",))
        assert candidacy.election.state is Attempt.WAITING
    candidacy.take(ElectionTick(), at=3.0)
    candidacy.take(RecordRead(versioned(ONE_COPY)))

    assert candidacy.asked(C, silent=("a/0",)) == [PromiseSelf(Epoch(2), "birth")]
    refusal = group.membership.writes_refused(3.0)
    assert refusal is not None
    assert refusal.kind is WriteRefusalKind.ISOLATED


def test_schedule_09_a_replica_that_is_no_member_counts_for_no_level() -> None:
    # Rule: the levels follow the confirmed offset, which members make.
    group = ConfirmingGroup(record=record_of("a/1"))
    group.slave("a/1", 0)
    group.slave("a/2", 0)
    group.master(100)

    group.slave("a/2", 100)

    assert group.confirmed.level_end(Ack.REPLICA_FLUSHED) == 0
    assert group.confirmed.copies(end(0), end(100)) == (("a/2", True),)


def test_schedule_10_a_stranger_that_had_adopted_the_epoch_holds_nothing_yet() -> None:
    # Rule: only what holds the log up to where the epoch begins counts, whatever an incarnation before it had adopted.
    group = ConfirmingGroup(record=record_of(), end=100)

    group.slave("a/1", 40, incarnation=2)
    before = group.confirmed.holders
    group.slave("a/1", 100, incarnation=2)

    assert before == {replica_of("a/0")}
    assert group.confirmed.holders == {replica_of("a/0"), replica_of("a/1", 2)}


def test_schedule_13_recorded_master_goes_above_a_failed_promise_alone() -> None:
    """The promise is of a failed election."""
    # Rule: the record's master is an election quorum by itself, and stands without being silent.
    master = replace(A, promised=Epoch(6))
    candidacy = Candidacy("a/0", own=master)

    candidacy.asked(silent=("a/1", "a/2"))

    assert candidacy.must(PromiseSelf).epoch == 7
    assert may_stand(rules_of("a/0"), master, THREE, BY_ITSELF, master_is_silent=False) is None


def test_schedule_14_a_master_starts_again_while_every_slave_is_dead() -> None:
    # Rule: the record's master is an election quorum by itself, with one copy too.
    candidacy = Candidacy("a/0", record=ONE_COPY)

    candidacy.asked(silent=("a/1", "a/2"))
    candidacy.promised_itself()
    candidacy.take(WriteEnded(Written("v2")))

    assert candidacy.must(BecomeMaster).elected.silent == ("a/1", "a/2")


def test_schedule_15_a_pause_does_not_bar_the_recorded_master() -> None:
    # Rule: under a pause, or in manual mode, the record's master stands, and so does one that is sent.
    paused = replace(THREE, paused=True)
    stand = [(node, order) for node in ("a/0", "a/1") for order in (BY_ITSELF, SENT, StandOrder(SentBy.MASTER))]

    for record, automatic in ((paused, True), (THREE, False)):
        found = [
            may_stand(rules_of(node, automatic=automatic), position(node), record, order, master_is_silent=True) is None
            for node, order in stand
        ]
        assert found == [True, True, True, False, True, True]


def test_schedule_16_damage_keeps_no_replica_from_standing() -> None:
    # Rule: undamaged replicas are preferred, not required.
    damaged = replace(B, damaged_bytes=512)
    candidacy = Candidacy(own=damaged)

    candidacy.asked(replace(C, damaged_bytes=1), silent=("a/0",))

    assert candidacy.must(PromiseSelf).epoch == 2
    assert B.preference < damaged.preference


def test_schedule_17_a_candidate_stands_back_once() -> None:
    # Rule: once, for 300 ms; then it stands, and takes the tail of the better one.
    better = replace(C, log_end=end(120))
    candidacy = Candidacy()

    assert candidacy.asked(better, silent=("a/0",)) == []
    assert candidacy.take(ElectionTick(), at=0.29) == []
    candidacy.take(ElectionTick(), at=0.3)
    candidacy.take(RecordRead(versioned(THREE)))

    assert candidacy.asked(better, silent=("a/0",)) == [PromiseSelf(Epoch(2), "birth")]


def test_schedule_17_a_candidate_that_stood_back_yields_to_the_winner() -> None:
    # Rule: after it stood back it begins at the record again.
    candidacy = Candidacy()
    candidacy.asked(replace(C, log_end=end(120)), silent=("a/0",))
    candidacy.take(ElectionTick(), at=0.3)

    candidacy.take(RecordRead(versioned(THREE.next("x", epoch=Epoch(2), master=C.replica))))

    assert candidacy.reason == "conflict"


def test_schedule_17_of_strangers_that_waited_together_the_better_one_goes_first() -> None:
    # Rule: whoever may lead without a quorum stands back too; all of them began to wait when power came back, and would duel for ever.
    strangers = [position(node, incarnation=2) for node in ("a/0", "a/1", "a/2")]
    first, second = Candidacy("a/0", own=strangers[0]), Candidacy("a/1", own=strangers[1])
    for candidacy, others in ((first, strangers[1:]), (second, strangers[::2])):
        candidacy.asked(*others)
        candidacy.take(ElectionTick(), at=5.0)
        candidacy.take(RecordRead(versioned(THREE)))
        candidacy.asked(*others)

    assert [type(each) for each in first.said] == [PromiseSelf]
    assert (second.said, second.election.state) == ([], Attempt.STANDING_BACK)
    second.take(ElectionTick(), at=5.3)
    second.take(RecordRead(versioned(THREE)))
    assert [type(each) for each in second.asked(*strangers[::2])] == [PromiseSelf]


def test_schedule_18_an_operators_candidate_deposes_a_master_that_is_heard() -> None:
    # Rule: a request says who sent the candidate.
    leading = replace(A, leads=True, sees_master=True)
    hearing = replace(C, sees_master=True, master="a/0")

    asked = [[decide_ask(each, "a/1", sent_by) for each in (leading, hearing)] for sent_by in SentBy]
    granted = decide_promise(leading, PromiseRequest("a/1", B.replica, Epoch(2), "birth", SentBy.OPERATOR))

    assert (asked, granted) == ([[False, False], [True, True], [True, True]], True)
    assert Candidacy(order=SENT).must(AskMembers).sent_by is SentBy.OPERATOR


def test_schedule_19_no_member_is_removed_below_min_in_sync_replicas() -> None:
    # Rule: never below min_in_sync_replicas members; then writes are refused while fewer stream.
    group = ConfirmingGroup(replace(RULES, min_in_sync_replicas=2), record=record_of("a/1"), streaming=("a/1",))
    group.slave("a/1", 0)

    group.confirmed.stream_ended("a/1", sent_goodbye=True, now=1.0)

    assert decided(group, 10.0) is None
    refusal = group.membership.writes_refused(10.0)
    assert refusal is not None
    assert refusal.kind is WriteRefusalKind.TOO_FEW_MEMBERS


def test_schedule_20_if_every_uuid_answers_the_best_log_leads_after_a_while() -> None:
    # Rule: every member's uuid answers, but too few under the recorded incarnation: after 5 s, by itself, and reported.
    here = [position(node, incarnation=2, end=end) for node, end in (("a/0", 100), ("a/1", 120), ("a/2", 100))]
    candidacy = Candidacy(own=here[1])

    candidacy.asked(here[0], here[2])
    for tenth in range(5, 55, 5):
        assert candidacy.election.state is Attempt.WAITING
        candidacy.take(ElectionTick(), at=tenth / 10)
        candidacy.take(RecordRead(versioned(THREE)))
        candidacy.asked(here[0], here[2])
    candidacy.promised(here[0], here[2])
    candidacy.take(WriteEnded(Written("v2")))

    elected = candidacy.must(BecomeMaster).elected
    assert [member.replica for member in elected.record.members] == [here[1].replica]
    assert elected.data_loss


def test_schedule_20_if_a_uuid_is_missing_no_replica_leads() -> None:
    # Rule: something better may come.
    here = [position(node, incarnation=2) for node in ("a/0", "a/1", "a/2")]
    candidacy = Candidacy(own=here[1])

    candidacy.asked(here[2], silent=("a/0",))

    assert candidacy.reason == "not_member"


def test_schedule_21_a_master_whose_switchover_failed_goes_above_its_own_promise() -> None:
    # Rule: a promise above the record's epoch, its own too, is gone above.
    candidacy = Candidacy("a/0", own=replace(A, promised=Epoch(2)))

    candidacy.asked(replace(B, promised=Epoch(2)), C)

    assert candidacy.must(PromiseSelf).epoch == 3


def test_schedule_22_an_election_needs_no_nameserver() -> None:
    # Rule: the record has the members' addresses.
    [asked] = Candidacy(nodes=()).said

    assert isinstance(asked, AskMembers)
    assert [target.address for target in asked.targets] == ["a-0:10912", "a-2:10912"]


def test_schedule_24_a_pause_that_comes_first_deposes_no_master() -> None:
    # Rule: a conflict alone deposes no master: the master reads, and goes on if epoch and master are its own.
    group = caught_up("a/1", record=())
    must(group, 1.0)

    group.membership.write_ended(Conflict(), 1.1)
    group.membership.record_read(Versioned(record_of().next("operator", paused=True), "v2"), 1.2)

    assert group.membership.state is RecordWrite.SETTLED
    assert must(group, 3.0).record.paused


def test_schedule_26_a_member_that_did_not_promise_leaves_at_once() -> None:
    # Rule: a member that did not answer the promise of this master, and has no stream, is removed at once.
    group = ConfirmingGroup(record=THREE, silent=("a/2",))
    group.slave("a/1", 0)

    change = must(group, 0.0)

    assert (nodes(change), [reason.kind for reason in change.reasons]) == (["a/1"], [MemberReasonKind.NO_PROMISE])


def test_schedule_27_a_master_drops_a_partitioned_slave_before_its_candidacy() -> None:
    # Rule: leave_ms is below peer_timeout_ms.
    assert RULES.leave_s < rules_of("a/1").silence_s


def test_schedule_28_members_change_from_any_set_to_any_other_in_one_write() -> None:
    # Rule: one write, if enough of the new members are holders.
    group = caught_up("a/1", "a/2", record=("a/1",))
    group.membership.must_leave(replica_of("a/1"))

    assert nodes(must(group, 1.0)) == ["a/2"]


def test_schedule_31_a_writer_recognises_its_own_write_behind_a_conflict() -> None:
    # Rule: a conflict is read; an answer that was lost, or sent again by a library, is its own success.
    candidacy = Candidacy(order=SENT)
    candidacy.asked(C, silent=("a/0",))
    candidacy.promised_itself()
    candidacy.take(PromiseAnswered(replace(C, promised=Epoch(2)), True))
    written = candidacy.must(WriteRecord).record

    candidacy.take(WriteEnded(Conflict()))
    candidacy.take(RecordRead(Versioned(written, "v2")))

    assert candidacy.must(BecomeMaster).elected.version == "v2"
