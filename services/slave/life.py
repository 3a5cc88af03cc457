"""One life of a broker process as a slave."""

from functools import partial
from typing import Final

from services.lives import check_life_as, live
from services.process import configuration_now
from services.slave.config import SlaveConfig
from services.slave.wiring import Slave

_PROGRAM: Final = "dittomq serve slave"


def life(*, is_first: bool) -> int:
    """The status to exit with; raises ComeBack when the process is to live on."""
    return live(_PROGRAM, SlaveConfig, partial(Slave, is_first=is_first, next_life=check_life_as), is_first=is_first)


def check() -> SlaveConfig:
    """Its configuration as it is now. Raises ConfigError where that lets no such life begin."""
    return configuration_now(_PROGRAM, SlaveConfig)
