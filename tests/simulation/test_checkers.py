"""Each promise, broken on purpose in a small history, is found; an honest history passes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dittomq.message import Ack, Copy, CopyState, PutStatus, Receipt
from dittomq.offsets import PhysicalOffset, QueueOffset
from tests.simulation.checkers import check_crashed_copy, check_final, check_given_up
from tests.simulation.history import Harm, History, Incident, Outcome, Publish, Read, Reign, Reservation
from tests.simulation.log_bytes import log_of
from tests.simulation.parser import ParsedRecord, parse_log, record_at

MESSAGES = (("t", 0, 0, b"one"), ("t", 1, 0, b"two"), ("t", 0, 1, b"three"))
FLUSHED = (Copy("a/0", CopyState.FLUSHED), Copy("a/1", CopyState.FLUSHED))


class Held:
    """A copy in files."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def record(self, offset: int, size: int) -> ParsedRecord:
        return record_at(self._files, offset)


def _read(at: float, record: ParsedRecord) -> Read:
    place = (record.topic, record.queue, record.queue_offset, record.physical_offset, record.size)
    return Read(at, "a/0", *place, record.body, may_be_undone=False)


class Case:
    """Two copies that hold MESSAGES, all of them acknowledged as flushed on both, read once and read at the end."""

    def __init__(self) -> None:
        self.copies = {"a/0": log_of(*MESSAGES), "a/1": log_of(*MESSAGES)}
        self.history = History([Reign(0.0, "a/0")], syncs_matter=True, copies=2)
        records = parse_log(self.copies["a/0"]).records
        for number, record in enumerate(records):
            publish = Publish(1.0, "p", number, record.topic, record.body, ordered=True)
            publish.stored(
                Receipt(
                    status=PutStatus.PUT_OK,
                    asked=Ack.REPLICA_FLUSHED,
                    levels_reached=frozenset(Ack),
                    copies=FLUSHED,
                    epoch=1,
                    broker="a",
                    topic=record.topic,
                    queue=record.queue,
                    queue_offset=QueueOffset(record.queue_offset),
                    physical_offset=PhysicalOffset(record.physical_offset),
                    record_bytes=record.size,
                    store_ms=record.stored_ms,
                    token="",
                    duplicate=False,
                ),
                1.5,
            )
            self.history.publishes.append(publish)
        reads = [_read(2.0, record) for record in records]
        self.history.reads = list(reads)
        self.history.final_reads = {"a/0": list(reads), "a/1": list(reads)}

    @property
    def last(self) -> Publish:
        return self.history.publishes[-1]

    def told(self, **changes: object) -> None:
        """Change the last receipt."""
        assert self.last.receipt is not None
        self.last.receipt = replace(self.last.receipt, **changes)  # type: ignore[arg-type]

    def hold(self, *messages: tuple[str, int, int, bytes]) -> None:
        """Both copies hold other messages, and serve them."""
        self.copies = {node: log_of(*messages) for node in self.copies}
        records = parse_log(self.copies["a/0"]).records
        reads = [_read(9.0, record) for record in records]
        self.history.final_reads = {"a/0": reads, "a/1": reads}

    def harm(self, harm: Harm, node: str = "a/0") -> None:
        self.history.incidents.append(Incident(3.0, node, harm))

    def found(self) -> list[str]:
        return list(map(str, check_final(self.history, self.copies)))


@pytest.fixture
def case() -> Case:
    return Case()


def test_an_honest_run_passes(case: Case) -> None:
    assert case.found() == []


def test_copies_that_differ_are_found(case: Case) -> None:
    case.copies["a/1"] = log_of(*MESSAGES[:2], ("t", 0, 1, b"thrEe"))

    assert any("differ at byte" in problem for problem in case.found())


def test_a_copy_that_ends_early_is_found(case: Case) -> None:
    case.copies["a/1"] = log_of(*MESSAGES[:2])

    assert any("ends at" in problem for problem in case.found())


def test_a_lost_acknowledged_message_is_found(case: Case) -> None:
    case.hold(*MESSAGES[:2])
    case.history.reads.clear()

    assert [problem for problem in case.found() if "p #2 was acknowledged" in problem and "is lost" in problem]


@pytest.mark.parametrize("harm", [Harm.POWER_LOST, Harm.SYNC_FAILED, Harm.DISK_LOST])
def test_what_only_the_master_had_received_may_be_lost_by_harm_to_it(case: Case, harm: Harm) -> None:
    case.hold(*MESSAGES[:2])
    case.history.reads.clear()
    case.told(levels_reached=frozenset({Ack.MASTER_RECEIVED}), copies=(Copy("a/0", CopyState.RECEIVED),))
    assert case.found() != []

    case.harm(harm)

    assert case.found() == []


def test_what_the_master_had_flushed_outlives_its_power_loss_but_not_its_disk(case: Case) -> None:
    case.hold(*MESSAGES[:2])
    case.history.reads.clear()
    case.told(levels_reached=frozenset({Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED}), copies=FLUSHED[:1])
    case.harm(Harm.POWER_LOST)
    assert case.found() != []

    case.harm(Harm.DISK_LOST)

    assert case.found() == []


def test_a_message_that_is_stored_twice_is_found(case: Case) -> None:
    case.hold(*MESSAGES, ("t", 0, 2, b"three"))

    assert any("is stored 2 times" in problem for problem in case.found())


def test_a_message_that_nobody_published_is_found(case: Case) -> None:
    case.hold(*MESSAGES, ("t", 0, 2, b"ghost"))

    assert any("nobody published b'ghost'" in problem for problem in case.found())


def test_a_message_that_was_reported_as_not_stored_is_found(case: Case) -> None:
    case.last.outcome, case.last.receipt = Outcome.NOT_STORED, None

    assert any("was reported as not stored" in problem for problem in case.found())
    case.history.copies = 1
    assert any("was reported as not stored" in problem for problem in case.found())
    case.harm(Harm.DISK_LOST)
    assert not any("was reported as not stored" in problem for problem in case.found())


def test_a_message_of_unknown_outcome_may_be_there_or_not(case: Case) -> None:
    case.last.outcome, case.last.receipt = Outcome.UNKNOWN, None
    assert case.found() == []

    case.hold(*MESSAGES[:2])
    case.history.reads.pop()

    assert case.found() == []


def test_a_receipt_with_a_wrong_place_is_found(case: Case) -> None:
    case.told(queue_offset=QueueOffset(7))

    assert any("the receipt says" in problem for problem in case.found())


def test_earlier_try_may_lie_where_the_acknowledged_one_need_not_survive(case: Case) -> None:
    alone = frozenset({Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED})
    case.told(queue_offset=QueueOffset(7), levels_reached=alone, copies=FLUSHED[:1])
    case.harm(Harm.DISK_LOST)
    assert any("the receipt says" in problem for problem in case.found()), "there was one try only"

    case.last.late = True
    assert case.found() == []

    case.told(levels_reached=frozenset(Ack), copies=FLUSHED)
    assert any("the receipt says" in problem for problem in case.found())


def test_a_hole_in_a_queue_is_found(case: Case) -> None:
    case.hold(*MESSAGES[:2], ("t", 0, 2, b"three"))

    assert any("where 1 is next" in problem for problem in case.found())


@pytest.mark.parametrize(("start", "offset", "is_found"), [(1, 2, False), (1, 3, True), (0, 2, True), (10_000, 2, True)])
def test_a_hole_is_excused_where_a_master_left_offsets_out(case: Case, start: int, offset: int, is_found: bool) -> None:
    case.hold(*MESSAGES[:2], ("t", 0, offset, b"three"))
    case.history.reservations = [Reservation(start, offsets=1)]

    assert any("goes on with offset" in problem for problem in case.found()) is is_found


def test_a_confirmed_read_that_was_undone_is_found_and_a_marked_one_is_not(case: Case) -> None:
    case.hold(*MESSAGES[:2])
    case.last.outcome, case.last.receipt = Outcome.UNKNOWN, None
    assert any("is not there any more" in problem for problem in case.found())

    case.history.reads[-1] = replace(case.history.reads[-1], may_be_undone=True)

    assert case.found() == []


def test_a_read_that_nobody_published_is_found(case: Case) -> None:
    case.history.reads.append(replace(case.history.reads[0], body=b"ghost", may_be_undone=True))

    assert any("which nobody published" in problem for problem in case.found())


def test_messages_of_one_producer_out_of_order_are_found(case: Case) -> None:
    case.history.publishes.reverse()

    assert any("lies before it" in problem for problem in case.found())


def test_epochs_that_go_back_are_found(case: Case) -> None:
    first = case.history.publishes[0]
    assert first.receipt is not None
    first.receipt = replace(first.receipt, epoch=2)

    assert any("in epoch 2" in problem for problem in case.found())


def test_a_copy_that_does_not_serve_everything_is_found(case: Case) -> None:
    case.history.final_reads["a/1"].pop()

    assert any("a/1 serves 2 messages" in problem for problem in case.found())


def test_a_crashed_copy_lacks_nothing_that_was_acknowledged_on_it(case: Case) -> None:
    assert list(check_crashed_copy(case.history, "a/1", Held(case.copies["a/1"]))) == []

    lacking = list(map(str, check_crashed_copy(case.history, "a/1", Held(log_of(*MESSAGES[:2])))))

    assert len(lacking) == 1
    assert "was acknowledged on a/1" in lacking[0]


def test_a_copy_that_had_only_received_may_lose_it_with_its_power_but_not_by_a_kill(case: Case) -> None:
    case.told(copies=(FLUSHED[0], Copy("a/1", CopyState.RECEIVED)))
    assert list(check_crashed_copy(case.history, "a/1", Held(log_of(*MESSAGES[:2])))) != []

    case.harm(Harm.POWER_LOST, "a/1")

    assert list(check_crashed_copy(case.history, "a/1", Held(log_of(*MESSAGES[:2])))) == []


def test_what_copies_had_received_is_lost_only_where_one_of_them_lost_power(case: Case) -> None:
    case.history.syncs_matter = False
    case.told(
        levels_reached=frozenset({Ack.MASTER_RECEIVED, Ack.REPLICA_RECEIVED}),
        copies=(Copy("a/0", CopyState.RECEIVED), Copy("a/1", CopyState.RECEIVED)),
    )
    case.hold(*MESSAGES[:2])
    case.history.reads.clear()
    assert [problem for problem in case.found() if "p #2 was acknowledged" in problem and "is lost" in problem]

    case.harm(Harm.POWER_LOST, "a/1")

    assert case.found() == []


def test_an_operator_is_not_to_give_up_what_cannot_be_lost(case: Case) -> None:
    there = log_of(*MESSAGES[:2])
    assert ["p #2" in str(found) for found in check_given_up(case.history, "a/0", Held(there))] == [True]

    case.harm(Harm.LOSS_ACCEPTED)

    assert list(check_given_up(case.history, "a/0", Held(there))) == []


def test_a_record_in_which_bits_have_flipped_is_not_given_up(case: Case) -> None:
    there = log_of(*MESSAGES[:2])
    lies_at = case.history.publishes[2].receipt
    assert lies_at is not None
    case.history.rotten["a/1", lies_at.physical_offset] = 1
    assert list(check_given_up(case.history, "a/0", Held(there))) != []

    case.history.rotten["a/0", lies_at.physical_offset] = 1

    assert list(check_given_up(case.history, "a/0", Held(there))) == []


def test_harm_to_whoever_led_later_excuses_what_only_the_master_had(case: Case) -> None:
    case.hold(*MESSAGES[:2])
    case.history.reads.clear()
    case.told(levels_reached=frozenset({Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED}), copies=FLUSHED[:1])
    case.harm(Harm.DISK_LOST, "a/1")
    assert case.found() != []

    case.history.reigns.append(Reign(2.0, "a/1"))

    assert case.found() == []


def test_a_log_that_begins_late_is_found_unless_what_it_lacks_was_old_enough_to_go(case: Case) -> None:
    large = tuple(("t", 0, number, b"%d" % number + bytes(60_000)) for number in range(3))
    case.history.publishes.clear()
    case.history.reads.clear()
    case.hold(*large)
    for publish, (*_, body) in enumerate(large):
        case.history.publishes.append(Publish(1.0, "p", publish, "t", body, ordered=True))
    for files in case.copies.values():
        del files[min(files)]
    assert any("the log begins at 65536" in problem for problem in case.found())

    case.history.kept_from = 65_536

    assert case.found() == []


def test_a_copy_in_which_bits_flipped_is_excused_and_no_other_is(case: Case) -> None:
    lacking = Held(log_of(*MESSAGES[:2]))
    assert case.last.receipt is not None
    case.history.rotten["a/1", case.last.receipt.physical_offset] = 100

    assert list(check_crashed_copy(case.history, "a/1", lacking)) == []
    assert list(check_crashed_copy(case.history, "a/0", lacking)) != []
