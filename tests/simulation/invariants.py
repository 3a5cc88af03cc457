"""What must hold of every run, by name, and how a run says that it did not."""

from dataclasses import dataclass
from enum import Enum


class Invariant(Enum):
    """The sentence is the promise."""

    I1 = "what a receipt says of each copy is true of that copy, then and after every fault"
    I2 = "the log holds nothing that nobody sent, and nothing twice"
    I3 = "a queue is in the order of each producer, its offsets without a hole"
    I4 = "a slave that is told to stream holds a beginning of its master's log; in the end all copies are equal"
    I5 = "one node acknowledges in an epoch, and none in an older one after a newer one acknowledged"
    I6 = "what was read as confirmed is on as many disks as asked for, and is never undone"
    I7 = "nobody is served bytes that nobody sent"
    I8 = "what was reported as not stored is in no log"
    I9 = "when the faults are over, everybody can write, all copies catch up and every node ends when asked to, in bounded time"
    I10 = "tasks, open files and connections of a process stay below their bounds"
    I11 = "a copy's tables are one version of the master's, never a mix, and never older than before"
    I12 = "whoever reads on is led past no message"
    I13 = "a topic that is made again serves nothing of what was deleted, and all that was sent to it since"
    I14 = "retention drops nothing that a known slave still lacks and is near enough to get"
    I15 = "nameservers name every node that lives, and none that has been silent for their expiry"
    I16 = "a group deals with every message of its topics, and again after a reset"
    I17 = "a group gets the messages of a queue in their order, and is led past none"
    I18 = "what waits is delivered once and not early; what was cancelled or rolled back is not"


@dataclass(frozen=True, slots=True)
class Broken:
    """One finding of a checker."""

    invariant: Invariant
    what: str

    def __str__(self) -> str:
        return f"{self.invariant.name} broken: {self.what}"
