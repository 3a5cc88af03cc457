"""The gate of a service, as its configuration says."""

import contextlib
import random
from collections.abc import Iterator, Sequence

import structlog

from dittomq.doors.clock import Clock
from dittomq.doors.transport import is_loopback
from dittomq.doors.workers import Workers
from dittomq.errors import ConfigError
from dittomq.security.authentication import Authentication
from dittomq.security.followed_files import following
from dittomq.security.gate import Gate
from dittomq.security.settings import AccessTable

log = structlog.get_logger()


@contextlib.contextmanager
def access_gate(
    settings: AccessTable, listens: Sequence[str], *, clock: Clock, workers: Workers, chance: random.Random
) -> Iterator[Gate | None]:
    """A gate with the configured rules, followed until the end; None where there are none. Raises ConfigError.

    `listens`: addresses at which this node answers. Without rules everybody who reaches them may do everything: a warning says so.
    """
    if not settings.file:
        for address in listens:
            if not is_loopback(address):
                log.warning("no_access_rules", address=address, why="whoever reaches it may do everything; name a file in access.file")
        yield None
        return
    who = Authentication(clock, workers.lane("access"), chance)
    gate = Gate(settings.files, who, clock, on_renewal=_renewed, on_problem=_refused)
    with following(gate):
        yield gate


def _renewed() -> None:
    log.info("access_renewed")


def _refused(problem: ConfigError) -> None:
    log.warning("access_not_renewed", why=str(problem))
