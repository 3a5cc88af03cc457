"""A change of roles that is only to be validated is refused as the change itself would be, and changes nothing."""

import asyncio

from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from dittomq.routes import Role
from dittomq.wire.admin import RoleChange
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)


async def answer(mq: AsyncClient, node: str, *, validate_only: bool, leads: bool = True, accept_loss: bool = False) -> RoleChange | str:
    """What became, or would become, of a change of roles: its refusal as it is read."""
    try:
        return await mq.admin.change_role(node, leads=leads, accept_loss=accept_loss, validate_only=validate_only)
    except DittoError as refused:
        return f"{type(refused).__name__}: {refused}"


async def stays(group: Group, mq: AsyncClient, machine: str, role: Role) -> None:
    """The node is what it was, and was not anything else meanwhile."""
    lives = group.node(machine).lives
    await asyncio.sleep(5)
    assert group.node(machine).lives == lives
    assert (await mq.admin.ha_status(f"{machine}:10911")).role == role


def test_a_change_of_places_that_is_only_validated_says_what_it_would_be_and_both_nodes_go_on_as_they_were() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        before = await mq.admin.ha_status("a/0")

        would_be = await answer(mq, "a/1", validate_only=True)

        await stays(group, mq, "a1", Role.SLAVE)
        await stays(group, mq, "a0", Role.SYNC_MASTER)
        after = await mq.admin.ha_status("a/0")
        assert (after.writable, after.epoch, after.in_sync_now) == (True, before.epoch, before.in_sync_now)
        assert would_be == RoleChange(before.epoch + 1, "", comes_back=True)
        assert await answer(mq, "a/1", validate_only=False) == would_be

    play(story)


def test_who_validates_a_change_is_refused_by_whom_the_change_is_refused_by() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        disk = group.node("a0").disk
        disk.capacity_bytes = disk.used_bytes()
        for node, leads, words in (("a/1", True, "the disk of a/0 has 0 bytes left"), ("a/0", False, "say who is to lead instead")):
            validated = await answer(mq, node, leads=leads, validate_only=True)
            assert words in str(validated)
            assert validated == await answer(mq, node, leads=leads, validate_only=False)
        disk.capacity_bytes = BOUNDLESS
        await group.kill("a0")
        validated = await answer(mq, "a/1", validate_only=True)
        assert "may still be writing" in str(validated)
        assert validated == await answer(mq, "a/1", validate_only=False)

        would_be = await answer(mq, "a/1", accept_loss=True, validate_only=True)

        assert isinstance(would_be, RoleChange)
        assert "may still be writing" in would_be.may_be_lost
        await stays(group, mq, "a1", Role.SLAVE)
        assert await answer(mq, "a/1", accept_loss=True, validate_only=False) == would_be

    play(story)


def test_a_recovering_master_says_what_would_be_lost_if_it_led_and_goes_on_waiting() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await group.kill("a2")
        await group.replace_disk("a0")
        await asyncio.sleep(1)
        refused = await answer(mq, "a/0", validate_only=True)
        assert refused == await answer(mq, "a/0", validate_only=False)

        would_be = await answer(mq, "a/0", accept_loss=True, validate_only=True)

        await stays(group, mq, "a0", Role.SYNC_MASTER)
        assert not (await mq.admin.ha_status("a0:10911")).writable
        assert isinstance(would_be, RoleChange)
        assert would_be.may_be_lost
        assert await answer(mq, "a/0", accept_loss=True, validate_only=False) == would_be

    play(story, TWO_SLAVES)
