"""Whose turn it is: messages that name neither a queue nor an order key go round the queues of their topic."""


class RoundRobin:
    """One counter for each topic that was published to since the start."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def take(self, topic: str, queues: int) -> int:
        """The next queue of `topic`."""
        turn = self._next.get(topic, 0) % queues
        self._next[topic] = turn + 1
        return turn
