"""What a start of a master is to do next. Values only; `leadership` decides, a driver obeys."""

from dataclasses import dataclass
from typing import Final

from dittomq.lineage import Lineage
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.leadership_states import Standing
from dittomq.routes import Opening


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet. `why` says what for."""

    why: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Cut the own log to `start`, or let it begin there if it holds nothing; fetch [start, end) from the slave, adopt its lineage, sync.

    Then ask again.
    """

    source: str
    address: str
    start: PhysicalOffset
    end: PhysicalOffset
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell every replica that answers that this node opens `epoch`, report what they knew before, and ask again."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Lead:
    """Open `epoch` at the log's end."""

    epoch: Epoch
    accepted_loss: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """An operator must decide; accept-loss is the only way past."""

    why: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Note durably that this node opened that epoch, and that its log is a part only of what slaves hold; report it, and ask again."""

    opening: Opening
    why: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Another node has opened a newer epoch: be its slave. `opener_id` is its configured id."""

    epoch: Epoch
    opener_id: int


Decision = Wait | TakeOver | Announce | Lead | Refuse | GiveUp | Follow

STANDING: Final = {
    Wait: Standing.WAITING,
    TakeOver: Standing.TAKING_OVER,
    Announce: Standing.ANNOUNCING,
    Lead: Standing.LEADING,
    Refuse: Standing.REFUSING,
    GiveUp: Standing.GIVING_UP,
    Follow: Standing.FOLLOWING,
}
"""Where a start stands that was told so."""
