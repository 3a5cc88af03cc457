"""Which of the two services a node is: the group record decides, and an election changes it.

Role is a service, not a flag: a process that is to be the other service drains, closes its store, and goes on as that one.
"""

from dataclasses import dataclass
from enum import StrEnum

from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import DiskFull, DittoError
from dittomq.replication.election_events import Elected


class BrokerService(StrEnum):
    """What a broker process can be."""

    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True, slots=True)
class RoleStart:
    """What a service begins with that the one before it in the same process has left.

    `elected`: the election that it won; None for a start of the process, and for every slave. `promised_to`: the candidate that it gave a
    promise to, "" for none: it stands for election itself only when that candidate had time to win. `stands`: it stands at once.
    `served`: an earlier service of this process had opened the store.
    """

    elected: Elected | None = None
    promised_to: str = ""
    stands: bool = False
    served: bool = False


FIRST_START = RoleStart()
"""Nothing: the process begins."""


@dataclass(eq=False)
class RoleChanged(DittoError):
    """This process has drained and closed its store, and goes on as `service`, which may be what it was."""

    service: BrokerService
    why: str
    start: RoleStart = FIRST_START

    def __str__(self) -> str:
        return f"goes on as {self.service}: {self.why}"


def check_room(storage: Storage, node: str, needed: int) -> None:
    """Raise DiskFull, before anything is changed, unless `needed` bytes are free on the disk of `node`."""
    free = storage.free_bytes()
    if free < needed:
        raise DiskFull(node, free, needed)
