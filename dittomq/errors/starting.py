"""Why a process cannot start, or must not go on."""

from dataclasses import dataclass
from typing import ClassVar

from dittomq.errors.root import DittoError


class StartError(DittoError):
    """This process cannot start."""


@dataclass(eq=False)
class ConfigError(StartError):
    """`where` names the file and line, variable or flag."""

    reason: ClassVar[str] = "CONFIG"
    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


@dataclass(eq=False)
class StoreLocked(StartError):
    """Another process holds the store."""

    reason: ClassVar[str] = "STORE_LOCKED"
    path: str

    def __str__(self) -> str:
        return f"the store {self.path} is held by another process; stop it or use another data_dir"


@dataclass(eq=False)
class UnreadableStore(StartError):
    """The store cannot be opened; nothing in it was changed."""

    reason: ClassVar[str] = "UNREADABLE_STORE"
    path: str
    problem: str

    def __str__(self) -> str:
        return f"the store {self.path} cannot be opened: {self.problem}"


@dataclass(eq=False)
class PortInUse(StartError):
    """The address cannot be bound."""

    reason: ClassVar[str] = "PORT_IN_USE"
    setting: str
    address: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.address} is in use; stop what holds it or choose another port"


@dataclass(eq=False)
class Superseded(DittoError):
    """Another replica has taken this node's id by a higher epoch; this process has drained and ends."""

    reason: ClassVar[str] = "SUPERSEDED"
    node: str

    def __str__(self) -> str:
        return f"another replica has taken the place of {self.node} by a higher epoch; stop that one before you start this one again"
