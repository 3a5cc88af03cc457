"""Deliberate bugs, each patched into the product for one run: whoever checks runs must find them.

A bug counts as found when a checker names an invariant that broke. What the product itself notices (an assertion, an error that ends
a process) is not enough: it proves nothing about the checkers. Of a bug that is `refused` nothing else is to be seen.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.simulation.bugs import batches, confirmation, delays, disks, elections, groups, leases, members, producers, streams, topics
from tests.simulation.bugs.patches import Patches
from tests.simulation.cluster import Cluster
from tests.simulation.faults import FaultKind
from tests.simulation.group_runs import simulate_groups
from tests.simulation.invariants import Broken
from tests.simulation.simulate import Run, simulate


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug by its name. `what` says it in a sentence; `seed` is one that finds it.

    `groups`: in runs about consumer groups.
    `stress`: it is hunted in runs with many faults of these kinds, which bring about what the bug breaks. `refused`: the store that it
    leaves is one that the product refuses to open, or brings in order by comparing content; checkers see only that the node stays away.
    """

    name: str
    what: str
    sabotage: Callable[[Patches, Cluster], None]
    seed: int
    stress: tuple[FaultKind, ...] = ()
    refused: bool = False
    groups: bool = False


@dataclass(frozen=True, slots=True)
class Killed:
    """`seed` was the `tries`-th, and `broken` is what its checkers found."""

    seed: int
    tries: int
    broken: tuple[Broken, ...]


@contextmanager
def sabotaged(mutant: Mutant, cluster: Cluster) -> Iterator[None]:
    """Run the product with this bug in it."""
    patches = Patches()
    try:
        mutant.sabotage(patches, cluster)
        yield
    finally:
        patches.undo()


def hunt(mutant: Mutant, seeds: Iterable[int]) -> Killed | None:
    """The first of these seeds whose checkers find the bug; None when none does."""
    for tries, seed in enumerate(seeds, 1):
        broken = partial(sabotaged, mutant)
        run = simulate_groups(seed, broken) if mutant.groups else simulate(seed, broken, mutant.stress)
        if run.broken and not _product_noticed(run, mutant):
            return Killed(seed, tries, run.broken)
    return None


def _product_noticed(run: Run, mutant: Mutant) -> bool:
    """Whether an assertion of the product failed, or a process ended by an error: then it is not the checkers that get the credit."""
    return any(not (mutant.refused and "StoreOpenFailed" in failure) for failure in run.failures)


_HANGS = (FaultKind.HANG,)
_STALLS = (FaultKind.STALL, FaultKind.KILL)
_FAILED_SYNCS = (FaultKind.FAILED_SYNC, FaultKind.POWER_LOSS)
_STARTS = (FaultKind.KILL, FaultKind.RESTART)
_FAILOVERS = (FaultKind.MASTER_DOWN, FaultKind.KILL)
_PARTS = (FaultKind.PARTED, FaultKind.KILL)
_PARTED_AND_LEFT = (FaultKind.PARTED, FaultKind.LEFT_BEHIND)
_PARTED_AND_SILENT = (FaultKind.PARTED, FaultKind.SILENCE)
_SILENT = (FaultKind.SILENCE, FaultKind.MASTER_DOWN)
_LAGS = (FaultKind.SLOW_LINK, FaultKind.MASTER_DOWN)
_LOST_DISKS = (FaultKind.DISK_LOSS, FaultKind.KILL)
_ROT = (FaultKind.ROT, FaultKind.KILL)
_CUT_LINKS = (FaultKind.CUT,)
_CUTS = (FaultKind.LEFT_BEHIND, FaultKind.CRASH_IN_A_CUT)
_LOST_ANSWERS = (FaultKind.CUT, FaultKind.SILENCE, FaultKind.KILL, FaultKind.CRASH_WHEN_TOLD)


def _alone(bug: Callable[[Patches], None]) -> Callable[[Patches, Cluster], None]:
    """A bug that asks nothing of the cluster."""
    return lambda patches, _: bug(patches)


MUTANTS = (
    Mutant("skip-fsync-master", "the master's fsync does nothing", disks.skip_fsync_of_master, 1),
    Mutant("skip-fsync-slave", "the slaves' fsync does nothing", disks.skip_fsync_of_slaves, 5),
    Mutant("retry-fsync", "a failed fsync of the log is tried again", disks.retry_failed_fsync, 1, _FAILED_SYNCS),
    Mutant("epoch-history-unsaved", "the entry of an epoch is not written down", disks.epoch_history_not_saved, 1),
    Mutant("cut-unsynced", "a cut is not synced", disks.cut_not_fsynced, 4, _CUTS, refused=True),
    Mutant("cut-short", "of what a slave is to cut, the first record stays", disks.cut_too_short, 2, _CUTS),
    Mutant("recovery-point-high", "the recovery point says more than what is flushed", disks.watermark_above_flushed, 2, _STALLS),
    Mutant("recovery-short", "a start after a power loss cuts one whole record too many", disks.recovery_cuts_one_record_too_many, 2),
    Mutant("serves-unverified", "what rots on a disk is served", disks.damage_is_served, 14, _ROT),
    Mutant("ack-early", "a slave acknowledges before it has written", streams.acknowledge_before_writing, 0),
    Mutant("ack-flushed", "a slave says flushed when it has received", streams.say_flushed_when_received, 5),
    Mutant("gap", "a chunk is lost and the slave writes on behind the gap", streams.write_behind_a_gap, 1, _STARTS),
    Mutant("tasks-left", "tasks of a stream go on when the slave dials anew", streams.leave_tasks_behind, 0, _CUT_LINKS),
    Mutant("equal-length", "copies of equal length are taken for equal", streams.trust_equal_length, 0, _CUTS),
    Mutant("count-twice", "a slave counts as two", confirmation.count_a_connection_twice, 73),
    Mutant(
        "ack-before-slave", "a slave counts as holding all that its master does", confirmation.what_the_master_holds_taken_for_a_copy, 0
    ),
    Mutant("master-serves-all", "the master serves what is not confirmed", confirmation.dispatch_past_confirmed, 0),
    Mutant("slave-serves-all", "a slave serves what it does not know to be confirmed", confirmation.slave_serves_past_confirmed, 44),
    Mutant("receipt-flushed", "a receipt calls flushed what a slave has only received", confirmation.receipt_claims_flushed, 5),
    Mutant("timeout-ok", "a level that was not reached in time is reported as PUT_OK", confirmation.timeout_reported_as_ok, 2),
    Mutant("epoch-again", "a start acknowledges in the epoch that was opened before", confirmation.epoch_not_raised, 0, _FAILOVERS),
    Mutant("quorum-of-one", "any promise is an election quorum", elections.one_promise_is_a_quorum, 25, _PARTED_AND_LEFT),
    Mutant("quorum-short", "an election quorum is one member short", elections.a_quorum_is_one_short, 32, _PARTED_AND_LEFT),
    Mutant("any-replica", "replicas that are no members confirm", elections.others_than_members_count, 4, _PARTED_AND_LEFT),
    Mutant("deposed-goes-on", "a deposed master keeps its slaves", elections.the_deposed_go_on, 8, _PARTS),
    Mutant("shortest-wins", "of the logs that promised the shortest wins", elections.the_shortest_log_wins, 7, _LAGS),
    Mutant("leads-alone", "a candidate without a quorum leads all the same", elections.too_few_are_enough, 67, _SILENT),
    Mutant("no-is-yes", "a candidate takes a refusal for a promise", elections.any_answer_promises, 12, _PARTED_AND_SILENT),
    Mutant("members-by-streams", "who has no stream counts as no member", elections.members_by_streams, 5, _PARTS),
    Mutant("unknown-is-written", "an unknown write of members counts as done", elections.unknown_is_written, 6, _PARTS),
    Mutant("nobody-joins", "who left the in-sync set never joins again", elections.nobody_joins, 0, _PARTS),
    Mutant("without-master", "slaves confirm what their master may lack", elections.the_master_may_lack_it, 54),
    Mutant("dedup-forgotten", "a start forgets what producers have stored", producers.forget_sequences_at_restart, 1),
    Mutant(
        "forgotten-as-new",
        "a producer that is forgotten is taken for a new one",
        producers.a_forgotten_producer_taken_for_a_new_one,
        53,
        _LOST_ANSWERS,
    ),
    Mutant(
        "dedup-not-copied",
        "sequences of records that were copied are not remembered",
        producers.no_sequences_of_copied_records,
        15,
        _LOST_DISKS,
    ),
    Mutant(
        "early-proof", "not in the log yet is taken as proof that it never will be", producers.not_in_the_log_taken_as_proof, 67, _HANGS
    ),
    Mutant(
        "unknown-not-stored", "an unknown outcome is reported as not stored", producers.unknown_reported_as_not_stored, 10, _LOST_ANSWERS
    ),
    Mutant("resent-anew", "a message that is sent again is sent as a new one", producers.sent_again_as_a_new_message, 10, _LOST_ANSWERS),
    Mutant("queue-hole", "a start leaves a hole in a queue's offsets", producers.a_queue_offset_skipped_at_restart, 0),
    Mutant("left-out", "a reader is led past a message", producers.a_message_is_left_out, 1),
    Mutant("wrong-byte", "a node serves a body with a wrong bit", producers.a_wrong_byte_is_served, 0),
    Mutant("table-in-two", "a table is replaced in two steps", producers.table_written_in_two_steps, 0),
    Mutant("table-own", "a slave leaves out a row and makes a version of its own", producers.a_slave_makes_a_version_of_its_own, 0),
    Mutant("bulk-offset-twice", "a frame encoded at once gives its last offset away again", batches.bulk_gives_an_offset_twice, 0),
    Mutant("bulk-tags", "queues do not know the tags of frames encoded at once", batches.bulk_forgets_tags, 5),
    Mutant("bulk-body", "a frame encoded at once repeats its first body", batches.bulk_repeats_a_body, 0),
    Mutant("columns-tags", "copies do not know the tags of records taken in at once", batches.columns_forget_tags, 5),
    Mutant("columns-queues", "of records taken in at once one queue gets the offsets of another", batches.columns_mix_up_queues, 0),
    Mutant("part-again", "a frame that is stored in part is stored again as a whole", batches.a_frame_stored_in_part_is_stored_again, 1),
    Mutant(
        "sync-takes-more",
        "what is written during a sync counts as flushed",
        disks.sync_takes_in_what_came_meanwhile,
        25,
        (FaultKind.STALL,),
    ),
    Mutant(
        "sync-takes-less",
        "what is written during a sync is not synced later",
        disks.sync_forgets_what_came_meanwhile,
        66,
        (FaultKind.STALL,),
    ),
    Mutant("chunk-early", "a chunk counts before its bytes are written", disks.chunk_counts_before_it_is_written, 10),
    Mutant("checkpoint-producer", "a checkpoint lacks the newest producer", disks.checkpoint_forgets_a_producer, 1),
    Mutant("deleted-stays", "a topic made again serves what was deleted", topics.deleted_messages_stay, 0),
    Mutant("deleted-stays-there", "slaves serve what was deleted", topics.deleted_messages_stay_on_slaves, 5),
    Mutant("deleted-too-much", "a topic made again hides its first messages", topics.new_messages_are_hidden, 0),
    Mutant("tag-left-out", "a reader of one tag is led past a message", topics.tagged_message_left_out, 0),
    Mutant("tag-of-first", "messages are served with the tag of another", topics.tags_are_not_told_apart, 0),
    Mutant("holds-nothing", "retention asks no slave", groups.nothing_is_held_for_slaves, 9),
    Mutant("never-expires", "a nameserver names nodes for ever", groups.nodes_never_expire, 3),
    Mutant("expires-for-good", "a node that expired once is never named again", groups.nodes_are_forgotten_for_good, 15),
    Mutant("never-stands", "no slave stands for election", groups.nobody_stands_for_election, 0),
    Mutant("lease-drops", "a message whose lease ends is dropped", _alone(leases.ended_leases_drop_their_message), 0, groups=True),
    Mutant("lease-passed", "an offset is committed past leased messages", _alone(leases.offsets_pass_leased_messages), 0, groups=True),
    Mutant("lease-dead", "the first failure is the last", _alone(leases.the_first_failure_is_the_last), 0, groups=True),
    Mutant("lease-half", "every other message counts as done", _alone(leases.every_other_message_counts_as_done), 0, groups=True),
    Mutant("commits-all", "what is handed out counts as handled", _alone(members.what_is_handed_out_counts_as_handled), 0, groups=True),
    Mutant("commits-more", "an offset is committed one too far", _alone(members.an_offset_is_committed_one_too_far), 0, groups=True),
    Mutant("delay-forgotten", "deliveries are remembered by no replica", _alone(delays.deliveries_are_forgotten), 0, groups=True),
    Mutant("delay-anew", "each term delivers from the beginning", _alone(delays.delivery_begins_anew_at_each_term), 0, groups=True),
    Mutant("delay-skips", "a new master leaves a delivery out", _alone(delays.delivery_leaves_out_the_first_of_a_term), 0, groups=True),
    Mutant("cancel-forgotten", "a new master forgets what is cancelled", _alone(delays.cancellations_are_not_recalled), 0, groups=True),
    Mutant("cancel-early", "cancelled is told before it is written", _alone(delays.cancelled_is_told_before_it_is_written), 0, groups=True),
)
