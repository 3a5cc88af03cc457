"""Consumer groups of a master and of a slave: changes are durable before they are answered, and a refusal changes nothing."""

from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.broker.groups import GroupReads, MasterGroups, SlaveGroups
from dittomq.errors import GroupExists, GroupNotFound, InvalidField, NotMaster, NotReady, VersionConflict
from dittomq.metadata.formats import GROUPS
from dittomq.metadata.groups import GroupUpdate
from dittomq.metadata.rows import GroupConfig
from tests.support.metadata_node import MetadataNode, run
from tests.support.virtual_time import under


class GroupMaster:
    """A master's consumer groups over a folder, epoch 3."""

    def __init__(self, folder: Path) -> None:
        self.node = MetadataNode.make(folder)
        self.deleted: list[tuple[str, int]] = []
        self.reads = GroupReads("a/0", self.node.metadata)
        self.groups = MasterGroups("a/0", self.node.metadata, self.node.clock, lambda: 3, lambda *what: self.deleted.append(what))

    async def create(self, *names: str) -> None:
        for name in names:
            await self.groups.create(GroupConfig(name), validate_only=False)


async def groups_on_disk(folder: Path) -> dict[str, GroupConfig]:
    again = MetadataNode.make(folder)
    await again.metadata.load()
    return dict(again.metadata.table(GROUPS).rows)


@under(run)
async def test_created_group_is_on_the_disk_when_the_call_returns(tmp_path: Path) -> None:
    master = GroupMaster(tmp_path)

    created, is_new = await master.groups.create(GroupConfig("billing", retry_max_times=3), validate_only=False)

    assert is_new
    assert await groups_on_disk(tmp_path) == {"billing": created}
    assert replace(created, incarnation=0) == GroupConfig("billing", retry_max_times=3)


@under(run)
async def test_creating_a_group_again_is_fine_with_equal_settings_only(tmp_path: Path) -> None:
    master = GroupMaster(tmp_path)
    await master.create("billing")
    version = master.node.metadata.table(GROUPS).version

    _, is_new = await master.groups.create(GroupConfig("billing"), validate_only=False)
    with pytest.raises(GroupExists, match='"billing" exists with retry_max_times 16, not 3'):
        await master.groups.create(GroupConfig("billing", retry_max_times=3), validate_only=False)

    assert not is_new
    assert master.node.metadata.table(GROUPS).version == version


@under(run)
async def test_group_made_again_is_another_incarnation(tmp_path: Path) -> None:
    master = GroupMaster(tmp_path)
    await master.create("billing")
    first = master.reads.get("billing").incarnation
    await master.groups.delete("billing", validate_only=False)
    await master.create("billing")

    assert master.reads.get("billing").incarnation > first > 0
    assert master.deleted == [("billing", 3)]


@pytest.mark.parametrize(
    ("group", "field"),
    [
        (GroupConfig("billing", retry_max_times=-1), "group.retry_max_times"),
        (GroupConfig("billing", retry_max_times=1_001), "group.retry_max_times"),
        (GroupConfig("billing", retry_queues=0), "group.retry_queues"),
        (GroupConfig("billing", retry_queues=1_025), "group.retry_queues"),
        (GroupConfig("billing", which_broker_when_consume_slowly=-1), "group.which_broker_when_consume_slowly"),
        (GroupConfig("billing", broker_id=2**31), "group.broker_id"),
        (GroupConfig(""), "group.name"),
        (GroupConfig("../x"), "group.name"),
        (GroupConfig("g" * 121), "group.name"),
        (GroupConfig("%RETRY%billing"), "group.name"),
        (GroupConfig("TOOLS_CONSUMER"), "group.name"),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
@under(run)
async def test_impossible_settings_of_a_group_are_refused_by_field(
    tmp_path: Path, validate_only: bool, group: GroupConfig, field: str
) -> None:
    master = GroupMaster(tmp_path)

    with pytest.raises(InvalidField) as refused:
        await master.groups.create(group, validate_only)

    assert refused.value.field == field
    assert dict(master.node.metadata.table(GROUPS).rows) == {}


@under(run)
async def test_update_changes_what_it_names_and_keeps_the_incarnation(tmp_path: Path) -> None:
    master = GroupMaster(tmp_path)
    await master.create("billing")
    before = master.reads.get("billing")
    update = GroupUpdate(GroupConfig("billing", retry_max_times=3, retry_queues=9), ("retry_max_times",))

    assert await master.groups.update(update, validate_only=True) == (replace(before, retry_max_times=3), True)
    assert master.reads.get("billing") == before
    assert await master.groups.update(update, validate_only=False) == (replace(before, retry_max_times=3), True)
    assert await master.groups.update(update, validate_only=False) == (replace(before, retry_max_times=3), False)
    assert await groups_on_disk(tmp_path) == {"billing": replace(before, retry_max_times=3)}


@under(run)
async def test_update_for_another_version_or_of_an_unknown_group_is_refused(tmp_path: Path) -> None:
    master = GroupMaster(tmp_path)
    await master.create("billing")
    known = master.node.metadata.table(GROUPS).version
    await master.create("other")

    with pytest.raises(VersionConflict):
        await master.groups.update(GroupUpdate(GroupConfig("billing", retry_max_times=3), ("retry_max_times",), known), False)
    with pytest.raises(GroupNotFound, match='did you mean "billing"'):
        await master.groups.update(GroupUpdate(GroupConfig("biling"), ("retry_max_times",)), False)
    with pytest.raises(GroupNotFound):
        await master.groups.delete("nobody", validate_only=True)


@under(run)
async def test_groups_are_listed_by_name_in_pages(tmp_path: Path) -> None:
    master = GroupMaster(tmp_path)
    await master.create("c", "a", "b")

    first = master.reads.list(2, "")
    rest = master.reads.list(2, first.next_token)
    await master.create("d")

    assert [row.name for row in (*first.rows, *rest.rows)] == ["a", "b", "c"]
    with pytest.raises(VersionConflict):
        master.reads.list(2, first.next_token)


@under(run)
async def test_slave_names_its_master_and_a_master_without_a_term_waits(tmp_path: Path) -> None:
    def waits() -> int:
        raise NotReady("a/0", "it waits for its epoch to be opened")

    node = MetadataNode.make(tmp_path)
    slave, waiting = SlaveGroups("a/1", lambda: "h:1"), MasterGroups("a/0", node.metadata, node.clock, waits)

    with pytest.raises(NotMaster, match="h:1"):
        await slave.create(GroupConfig("billing"), validate_only=False)
    with pytest.raises(NotReady):
        await waiting.create(GroupConfig("billing"), validate_only=False)
