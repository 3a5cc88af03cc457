"""Slaves as their master lists them."""

from services.master.slaves import SlaveRecord, with_absent

HEARD = {name: SlaveRecord(name, f"u-{name}", "following") for name in ("a/3", "a/1")}


def listed(known: set[str], expected: int) -> list[tuple[str, str]]:
    return [(record.node, record.state) for record in with_absent(HEARD, known, expected)]


def test_a_slave_that_is_known_and_was_not_heard_is_listed_while_one_is_missing() -> None:
    assert listed({"a/1", "a/2"}, 3) == [("a/1", "following"), ("a/2", "unknown"), ("a/3", "following")]


def test_a_slave_that_another_one_has_replaced_is_not_missed() -> None:
    assert listed({"a/1", "a/2"}, 2) == [("a/1", "following"), ("a/3", "following")]
