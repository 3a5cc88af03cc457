"""Slaves as their master lists them."""

from dittomq.group_record import ReplicaId
from dittomq.ha_status import NodeState
from services.master.replica_registry import SlaveRecord, with_absent

HEARD = {name: SlaveRecord(name, ReplicaId(f"u-{name}", "1"), NodeState.FOLLOWING) for name in ("a/3", "a/1")}


def listed(known: set[str], expected: int) -> list[tuple[str, str]]:
    return [(record.node, record.state) for record in with_absent(HEARD, known, expected)]


def test_a_slave_that_is_known_and_was_not_heard_is_listed_while_one_is_missing() -> None:
    assert listed({"a/1", "a/2"}, 3) == [("a/1", "following"), ("a/2", "unknown"), ("a/3", "following")]


def test_a_slave_that_another_one_has_replaced_is_not_missed() -> None:
    assert listed({"a/1", "a/2"}, 2) == [("a/1", "following"), ("a/3", "following")]


def test_removed_slave_is_named_until_the_group_is_complete() -> None:
    """Until as many others are connected as the group has."""
    heard = {
        "a/1": SlaveRecord("a/1", ReplicaId("u-1", "1"), NodeState.GONE),
        "a/2": SlaveRecord("a/2", ReplicaId("u-2", "1"), NodeState.FOLLOWING, connected=True),
    }

    def named(expected: int) -> list[str]:
        return [record.node for record in with_absent(heard, (), expected)]

    assert (named(1), named(2), named(0)) == (["a/2"], ["a/1", "a/2"], ["a/1", "a/2"])
