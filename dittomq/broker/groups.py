"""Consumer groups of one broker group, as its nodes answer for them. A master changes them, a slave names the master."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn, Protocol

from dittomq.broker.metadata import Metadata
from dittomq.broker.topics import nothing_follows, nothing_is_missing
from dittomq.doors.clock import Clock
from dittomq.errors import GroupExists, NotMaster, VersionConflict
from dittomq.metadata.formats import GROUPS
from dittomq.metadata.groups import (
    GROUP_SETTINGS,
    GroupUpdate,
    check_group_name,
    check_new_group,
    find_group,
    incarnation_of,
    updated_group,
)
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import Ask, Table, TablePage, answer


class GroupChanges(Protocol):
    """Creates, changes and deletes consumer groups, or says who does."""

    async def create(self, group: GroupConfig, validate_only: bool) -> tuple[GroupConfig, bool]: ...

    async def update(self, update: GroupUpdate, validate_only: bool) -> tuple[GroupConfig, bool]: ...

    async def delete(self, name: str, validate_only: bool) -> None: ...


class GroupReads:
    """Answers what consumer groups there are, from this node's table.

    `check_complete` raises NotReady while others may have groups that this node lacks.
    """

    def __init__(self, node: str, metadata: Metadata, *, check_complete: Callable[[], None] = nothing_is_missing) -> None:
        self._node = node
        self._metadata = metadata
        self._check_complete = check_complete

    def get(self, name: str) -> GroupConfig:
        """The group; raises GroupNotFound."""
        check_group_name(name, "name")
        rows = self._metadata.table(GROUPS).rows
        if name not in rows:
            self._check_complete()
        return find_group(rows, name, self._node)

    def list(self, page_size: int, page_token: str) -> TablePage[GroupConfig]:
        """A page of groups, by name; VersionConflict when the table moved on since the page before."""
        table = self._metadata.table(GROUPS)
        if not table.rows:
            self._check_complete()
        return answer(GROUPS.name, table, Ask(page_size=page_size, page_token=page_token))


@dataclass(frozen=True, slots=True)
class MasterGroups:
    """Creates, changes and deletes the broker group's consumer groups.

    `epoch` tells the one in which this master leads, or raises NotReady. `deleted` is told of a deletion, when it is durable, and of its
    epoch.
    """

    node: str
    metadata: Metadata
    clock: Clock
    epoch: Callable[[], int]
    deleted: Callable[[str, int], None] = nothing_follows
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change after the other

    async def create(self, group: GroupConfig, validate_only: bool) -> tuple[GroupConfig, bool]:
        """Create the group, durably before returning; tells the group as it is and whether it is new.

        A group that exists with equal settings is left alone, one with others raises GroupExists.
        """
        check_new_group(group)
        self.epoch()
        if validate_only:
            existing = _existing(self.metadata.table(GROUPS), group)
            return existing or group, existing is None
        async with self._turn:
            before = self.metadata.table(GROUPS)
            after = await self.metadata.change(GROUPS, lambda table: self._with(table, group))
        return after.rows[group.name], group.name not in before.rows

    async def update(self, update: GroupUpdate, validate_only: bool) -> tuple[GroupConfig, bool]:
        """Change settings of the group, durably before returning; tells the group as it is and whether something changed.

        Raises GroupNotFound, InvalidField, and VersionConflict when the change is for another version of the groups.
        """
        name = update.group.name
        check_group_name(name, "group.name")
        self.epoch()
        async with self._turn:
            table = self.metadata.table(GROUPS)
            after = self._with_update(table, update)
            if not validate_only:
                after = await self.metadata.change(GROUPS, lambda newest: self._with_update(newest, update))
        return after.rows[name], after.rows[name] is not table.rows[name]

    async def delete(self, name: str, validate_only: bool) -> None:
        """Delete the group, durably before returning, and its offsets: made again, it has none."""
        check_group_name(name, "name")
        find_group(self.metadata.table(GROUPS).rows, name, self.node)
        self.epoch()
        if validate_only:
            return
        async with self._turn:
            try:
                await self.metadata.change(GROUPS, lambda table: self._without(table, name))
            finally:
                await self.metadata.settled()  # a caller that leaves does not stop the change
                if name not in (after := self.metadata.table(GROUPS)).rows:
                    self.deleted(name, after.version.state_version)

    def _with(self, table: Table[GroupConfig], group: GroupConfig) -> Table[GroupConfig]:
        if _existing(table, group) is not None:
            return table
        epoch, now_ms = self.epoch(), self.clock.wall_ms()
        new = replace(group, incarnation=incarnation_of(table.version.next(epoch, now_ms)))
        return table.changed([*table.rows.values(), new], epoch, now_ms)

    def _with_update(self, table: Table[GroupConfig], update: GroupUpdate) -> Table[GroupConfig]:
        before = find_group(table.rows, update.group.name, self.node)
        if update.known is not None and update.known != table.version:
            raise VersionConflict(GROUPS.name)
        after = updated_group(before, update)
        if after is before:
            return table
        return table.changed([*table.rows.values(), after], self.epoch(), self.clock.wall_ms())

    def _without(self, table: Table[GroupConfig], name: str) -> Table[GroupConfig]:
        if name not in table.rows:
            return table
        return table.changed((row for row in table.rows.values() if row.name != name), self.epoch(), self.clock.wall_ms())


@dataclass(frozen=True, slots=True)
class SlaveGroups:
    """Changes nothing and names the master; `master` tells its client address, empty while unknown."""

    node: str
    master: Callable[[], str]

    async def create(self, group: GroupConfig, validate_only: bool) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())

    async def update(self, update: GroupUpdate, validate_only: bool) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())

    async def delete(self, name: str, validate_only: bool) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())


def _existing(table: Table[GroupConfig], asked: GroupConfig) -> GroupConfig | None:
    """The group of that name when it has the settings asked for, None when there is none; GroupExists otherwise."""
    existing = table.rows.get(asked.name)
    if existing is None:
        return None
    for asked_field in GROUP_SETTINGS:
        has, wants = getattr(existing, asked_field), getattr(asked, asked_field)
        if has != wants:
            raise GroupExists(asked.name, asked_field, str(has), str(wants))
    return existing
