"""Which error ends a command with which exit code."""

import pytest

from dittomq import errors
from dittomq.cli.exits import ExitCode, exit_of
from dittomq.message import Ack, PutStatus, Receipt
from dittomq.offsets import PhysicalOffset, QueueOffset

RECEIPT = Receipt(
    PutStatus.FLUSH_SLAVE_TIMEOUT,
    Ack.REPLICA_FLUSHED,
    frozenset(),
    (),
    1,
    "a",
    "t",
    0,
    QueueOffset(0),
    PhysicalOffset(0),
    100,
    0,
    "",
    False,
)
HANDLE = errors.OutcomeHandle("a", "p", 0, "t", 0)
REFUSED = errors.TopicNotFound("order", "cluster prod", "orders")
SILENT = errors.Unavailable("a/0", "connection refused")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (REFUSED, ExitCode.REFUSED),
        (errors.AckLevelNotReached(RECEIPT), ExitCode.PARTLY),
        (errors.OutcomeUnknown(HANDLE, "no answer"), ExitCode.UNKNOWN),
        (errors.StorageFailure("fdatasync", "commitlog/0", "I/O error"), ExitCode.UNKNOWN),
        (SILENT, ExitCode.UNAVAILABLE),
        (errors.ConfigError("a.toml:3", "unknown key"), ExitCode.USAGE),
        (errors.StoreLocked("/data"), ExitCode.REFUSED),
        (errors.NotStored("t", REFUSED), ExitCode.REFUSED),
        (errors.NotStored("t", SILENT), ExitCode.UNAVAILABLE),
    ],
)
def test_every_family_of_errors_has_its_exit_code(error: errors.DittoError, code: ExitCode) -> None:
    assert exit_of(error) is code


def test_no_error_of_the_tree_is_an_internal_error() -> None:
    def leaves(kind: type[errors.DittoError]) -> list[type[errors.DittoError]]:
        below = kind.__subclasses__()
        return [leaf for child in below for leaf in leaves(child)] if below else [kind]

    for leaf in leaves(errors.DittoError):
        if leaf is not errors.NotStored and leaf.__module__ == errors.__name__:
            assert exit_of(leaf.__new__(leaf)) is not ExitCode.INTERNAL, leaf.__name__
