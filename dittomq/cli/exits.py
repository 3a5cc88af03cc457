"""What the command line's exit codes mean, and which error leads to which."""

from enum import IntEnum

from dittomq.cli.output import OutputFailed
from dittomq.errors import (
    AckLevelNotReached,
    ConfigError,
    DittoError,
    NotStored,
    OutcomeUnknown,
    Refused,
    StartError,
    StorageFailure,
    Unavailable,
)


class ExitCode(IntEnum):
    """The same in every command; `audit` has bits of its own below 64."""

    DONE = 0
    REFUSED = 1
    PARTLY = 3
    UNKNOWN = 4
    UNAVAILABLE = 5
    USAGE = 64
    INTERNAL = 128


_EXIT_OF: tuple[tuple[type[DittoError], ExitCode], ...] = (
    (Refused, ExitCode.REFUSED),
    (AckLevelNotReached, ExitCode.PARTLY),
    (OutcomeUnknown, ExitCode.UNKNOWN),
    (StorageFailure, ExitCode.UNKNOWN),
    (Unavailable, ExitCode.UNAVAILABLE),
    (ConfigError, ExitCode.USAGE),
    (StartError, ExitCode.REFUSED),
    (OutputFailed, ExitCode.PARTLY),
)


def exit_of(error: DittoError) -> ExitCode:
    """The exit code that an error ends a command with."""
    if isinstance(error, NotStored):
        return exit_of(error.cause)
    return next((code for kind, code in _EXIT_OF if isinstance(error, kind)), ExitCode.INTERNAL)
