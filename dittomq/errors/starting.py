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
    sentence: ClassVar[str] = "{0.where}: {0.problem}"
    where: str
    problem: str


@dataclass(eq=False)
class StoreLocked(StartError):
    """Another process holds the store."""

    reason: ClassVar[str] = "STORE_LOCKED"
    sentence: ClassVar[str] = "the store {0.path} is held by another process; stop it or use another data_dir"
    path: str


@dataclass(eq=False)
class StoreOpenFailed(StartError):
    """The store cannot be opened; nothing in it was changed."""

    reason: ClassVar[str] = "STORE_OPEN_FAILED"
    sentence: ClassVar[str] = "the store {0.path} cannot be opened: {0.problem}"
    path: str
    problem: str


@dataclass(eq=False)
class PortInUse(StartError):
    """The address cannot be bound."""

    reason: ClassVar[str] = "PORT_IN_USE"
    sentence: ClassVar[str] = "{0.setting}: {0.address} is in use; stop what holds it or choose another port"
    setting: str
    address: str


@dataclass(eq=False)
class CannotListen(StartError):
    """The address cannot be bound, whoever holds its port. `problem` says what to change."""

    reason: ClassVar[str] = "CANNOT_LISTEN"
    sentence: ClassVar[str] = "{0.setting}: {0.address} {0.problem}"
    setting: str
    address: str
    problem: str


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
