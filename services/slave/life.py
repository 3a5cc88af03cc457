"""One life of a broker process as a slave."""

from functools import partial

from services.lives import live
from services.slave.config import SlaveConfig
from services.slave.wiring import Slave


def life(*, is_first: bool) -> int:
    """The status to exit with; raises ComeBack when the process is to live on."""
    return live("dittomq serve slave", SlaveConfig, partial(Slave, is_first=is_first), is_first=is_first)
