"""Whose turn it is."""

from services.master.turns import RoundRobin


def test_messages_without_a_queue_go_round() -> None:
    turns = RoundRobin()

    assert [turns.take("t", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert turns.take("u", 3) == 0
