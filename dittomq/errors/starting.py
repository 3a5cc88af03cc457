"""Why a process cannot start, or must not go on."""

import errno
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
class CannotListen(StartError):
    """The address cannot be bound, whoever holds its port. `problem` says what to change."""

    reason: ClassVar[str] = "CANNOT_LISTEN"
    setting: str
    address: str
    problem: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.address} {self.problem}"


def not_bound(setting: str, address: str, why: OSError | None) -> PortInUse | CannotListen:
    """What to tell of an address that was not bound; `why` None: nobody knows, and most likely its port is held."""
    if why is None or why.errno == errno.EADDRINUSE:
        return PortInUse(setting, address)
    if why.errno == errno.EADDRNOTAVAIL:
        problem = "is no address of this machine; listen at one that it has, or at 0.0.0.0 for all of them"
    elif why.errno in {errno.EACCES, errno.EPERM}:
        problem = "may not be bound by this user; choose a port from 1024 on"
    else:
        problem = f"cannot be listened at: {why.strerror or why}; choose another address"
    return CannotListen(setting, address, problem)
