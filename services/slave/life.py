"""A broker process while it serves as a slave."""

from dittomq.broker.config import BrokerConfig
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import RoleStart
from dittomq.doors.coordination import CoordinationStore
from dittomq.settings import Loaded
from services.role_supervisor import configured_as
from services.slave.config import SlaveConfig
from services.slave.wiring import Slave

config_class = SlaveConfig


def compose(loaded: Loaded[BrokerConfig], doors: BrokerDoors, *, start: RoleStart, coordination: CoordinationStore | None) -> Slave:
    """The slave on these doors, ready to run."""
    return Slave(configured_as(loaded, SlaveConfig), doors, start=start, coordination=coordination)
