"""One life of a broker process as a master."""

from functools import partial
from typing import Final

from services.lives import check_life_as, live
from services.master.config import MasterConfig
from services.master.wiring import Master
from services.process import configuration_now

_PROGRAM: Final = "dittomq serve master"


def life(*, is_first: bool) -> int:
    """The status to exit with; raises ComeBack when the process is to live on."""
    return live(_PROGRAM, MasterConfig, partial(Master, is_first=is_first, next_life=check_life_as), is_first=is_first)


def check() -> MasterConfig:
    """Its configuration as it is now. Raises ConfigError where that lets no such life begin."""
    return configuration_now(_PROGRAM, MasterConfig)
