"""A disk with no more room than a test leaves."""

from tests.support.stores import Machine


def leave(machine: Machine, free: int) -> None:
    machine.disk.capacity_bytes = machine.disk.used_bytes() + free
