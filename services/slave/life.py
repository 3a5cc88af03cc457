"""One life of a broker process as a slave."""

from functools import partial
from typing import Final

from services.lives import check_life_as, live
from services.process import check_configuration
from services.slave.config import SlaveConfig
from services.slave.wiring import Slave

_PROGRAM: Final = "dittomq serve slave"


def life(*, is_first: bool) -> int:
    """The status to exit with; raises ComeBack when the process is to live on."""
    return live(_PROGRAM, SlaveConfig, partial(Slave, is_first=is_first, next_life=check_life_as), is_first=is_first)


def check() -> None:
    """Raise ConfigError where its configuration, as it is now, lets no such life begin."""
    check_configuration(_PROGRAM, SlaveConfig)
