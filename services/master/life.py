"""A broker process while it serves as a master."""

from dittomq.broker.config import BrokerConfig
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import RoleStart
from dittomq.doors.coordination import CoordinationStore
from dittomq.settings import Loaded
from services.master.config import MasterConfig
from services.master.wiring import Master
from services.role_supervisor import configured_as

config_class = MasterConfig


def compose(loaded: Loaded[BrokerConfig], doors: BrokerDoors, *, start: RoleStart, coordination: CoordinationStore | None) -> Master:
    """The master on these doors, ready to run."""
    return Master(configured_as(loaded, MasterConfig), doors, start=start, coordination=coordination)
