"""A node has its role shown, however often that takes."""

from dittomq.broker.role import BrokerService
from dittomq.errors import Unavailable
from services.broker_lifecycle import show_role
from tests.support.memory_coordination import MemoryCoordination, MemoryDoor
from tests.support.metadata_node import run
from tests.support.virtual_time import under


class RefusingDoor(MemoryDoor):
    """Its surroundings take a role at the third time."""

    shown: tuple[str, ...] = ()

    async def show_role(self, role: str) -> None:
        self.shown += (role,)
        if len(self.shown) < 3:
            raise Unavailable("kubernetes pod", "cannot connect")


@under(run)
async def test_a_role_that_cannot_be_shown_is_tried_until_it_can_be() -> None:
    door = RefusingDoor(MemoryCoordination(), "a/0")

    await show_role(door, BrokerService.MASTER)

    assert door.shown == ("master",) * 3
