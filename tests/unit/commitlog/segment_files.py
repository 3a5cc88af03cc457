"""Files of segments that somebody removes."""

from tests.support.stores import Machine
from tests.unit.commitlog.repaired_stores import SEGMENT


def path_of(number: int) -> str:
    return f"commitlog/{number * SEGMENT:020d}"


def remove(machine: Machine, number: int) -> None:
    storage = machine.beside()
    storage.unlink(path_of(number))
    storage.sync_folder("commitlog")
