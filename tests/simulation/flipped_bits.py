"""Bits that a test flips in a record on one disk."""

from tests.simulation.group import Group

_SEGMENT = 65_536


def flip(group: Group, machine: str, position: int) -> None:
    """One bit changes on that machine's disk, durably, behind everybody's back."""
    base = position - position % _SEGMENT
    inode = group.node(machine).disk.names.files[f"commitlog/{base:020d}"]
    inode.sync()
    inode.write(memoryview(bytes([inode.read(1, position - base)[0] ^ 4])), position - base, group.node(machine).disk.chance)
    inode.sync()
