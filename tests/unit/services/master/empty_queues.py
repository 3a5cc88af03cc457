"""Queues that a term needs and a test does not."""

from dittomq.offsets import PhysicalOffset


class NoQueues:
    readable = PhysicalOffset(0)

    def readable_to(self, end: PhysicalOffset) -> None:
        self.readable = end
