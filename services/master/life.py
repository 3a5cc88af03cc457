"""One life of a broker process as a master."""

from functools import partial

from services.lives import live
from services.master.config import MasterConfig
from services.master.wiring import Master


def life(*, is_first: bool) -> int:
    """The status to exit with; raises ComeBack when the process is to live on."""
    return live("dittomq serve master", MasterConfig, partial(Master, is_first=is_first), is_first=is_first)
