"""What `repair` says of a node."""

import pytest

from dittomq.cli.repair import NodeRepair, nodes_to_repair, report_lines
from dittomq.copies import MessageSpan, RangeOutcome
from dittomq.errors import InvalidField, Unavailable
from dittomq.offsets import PhysicalOffset, QueueOffset
from tests.support.ha_answers import registered

EVERYTHING = [(None, None)]


def test_a_node_is_called_whole_only_after_a_look_at_it() -> None:
    looked, silent, spared = NodeRepair("a/0", EVERYTHING), NodeRepair("a/1", EVERYTHING), NodeRepair("a/2", [])
    looked.verified_bytes = 1_000
    silent.error = Unavailable("a/1", "connection refused")

    assert report_lines(looked) == ["a/0  1,000 bytes verified, nothing is damaged"]
    assert report_lines(silent) == [f"a/1  FAILED  {silent.error}", "a/1  0 bytes verified"]
    assert report_lines(spared) == ["a/2  nothing was verified: that audit found nothing wrong on it"]


def test_a_node_or_group_that_is_not_registered_is_refused_by_name() -> None:
    assert [node.name for node in nodes_to_repair([registered(0)], None, "a")] == ["a/0"]
    with pytest.raises(InvalidField, match='broker: "b" is not registered'):
        nodes_to_repair([registered(0)], None, "b")
    with pytest.raises(InvalidField, match='node: "a/9" is not registered'):
        nodes_to_repair([registered(0)], "a/9", None)


def test_each_damaged_range_is_named_with_what_became_of_it() -> None:
    done = NodeRepair("a/0", EVERYTHING)
    done.verified_bytes = 5_000
    done.ranges = [RangeOutcome(PhysicalOffset(1_000), PhysicalOffset(2_000), "a/1")]
    done.ranges.append(RangeOutcome(PhysicalOffset(3_000), PhysicalOffset(4_000), "", "no copy has it"))

    assert report_lines(done) == [
        "a/0  bytes 1,000 to 2,000  repaired from a/1",
        "a/0  bytes 3,000 to 4,000  NOT REPAIRED: no copy has it",
        "a/0  5,000 bytes verified, 2 ranges were damaged, 1 still is",
    ]


def test_messages_in_unrepaired_ranges_are_named() -> None:
    """It is said where there may be others."""
    done = NodeRepair("a/0", EVERYTHING)
    runs = [MessageSpan("orders", queue, QueueOffset(7), QueueOffset(8 + queue)) for queue in range(22)]
    done.ranges = [
        RangeOutcome(PhysicalOffset(1_000), PhysicalOffset(2_000), "", "no copy has it", tuple(runs[:2])),
        RangeOutcome(PhysicalOffset(3_000), PhysicalOffset(4_000), "", "no copy has it", tuple(runs), more_messages=True),
    ]

    lines = report_lines(done)

    assert lines[1:3] == ["a/0    in it: orders 0@7", "a/0    in it: orders 1@7 to 8"]
    assert lines[23:26] == [
        "a/0    in it: orders 19@7 to 26",
        "a/0    in it: messages of 2 more stretches of queues; --json names them",
        "a/0    in it, perhaps: messages whose queue offsets are not known here, or too many to be named",
    ]


def test_one_damaged_range_is_told_as_one() -> None:
    done = NodeRepair("a/0", EVERYTHING)
    done.verified_bytes = 5_000
    done.ranges = [RangeOutcome(PhysicalOffset(1_000), PhysicalOffset(2_000), "a/1")]

    assert report_lines(done)[-1] == "a/0  5,000 bytes verified, 1 range was damaged, 0 still are"


def test_what_was_repaired_beyond_the_bytes_that_were_asked_for_is_explained() -> None:
    asked, inside = NodeRepair("a/0", [(1_500, 1_600)]), NodeRepair("a/0", [(1_000, 2_000)])
    for done in (asked, inside):
        done.verified_bytes = 1_000
        done.ranges = [RangeOutcome(PhysicalOffset(1_000), PhysicalOffset(2_000), "a/1")]

    assert report_lines(asked)[-1] == (
        "a/0  more than was asked for: records are verified whole, and a damaged range is repaired whole when it touches one"
    )
    assert "more than was asked" not in "".join(report_lines(inside))
    assert not NodeRepair("a/0", EVERYTHING).is_more_than_asked
