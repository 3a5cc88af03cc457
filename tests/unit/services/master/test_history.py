"""The history of the group record."""

import random
from dataclasses import astuple

from dittomq.commitlog.disk import state_file
from dittomq.wire.admin import HaChange, ha_changes, ha_history_responses
from services.master.history import MOST_CHANGES, HaHistory
from tests.simulation.disk import BOUNDLESS
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import run
from tests.support.stores import Machine
from tests.support.virtual_time import under


def change(revision: int) -> HaChange:
    return HaChange(1_000 + revision, revision, 3, "a/0", ("a/0", "a/1"), f"a/{revision} has caught up", 12)


def opened(machine: Machine) -> HaHistory:
    return HaHistory(machine.beside(), InlineLane())


@under(run)
async def test_a_change_is_there_after_a_restart() -> None:
    machine = Machine(random.Random(1))
    machine.open()
    await opened(machine).add(change(1))

    again = opened(machine)
    await again.load()

    assert again.changes == (change(1),)


@under(run)
async def test_of_very_many_changes_the_last_thousand_are_kept() -> None:
    machine = Machine(random.Random(1))
    machine.open()
    rows = [astuple(change(revision)) for revision in range(MOST_CHANGES)]
    state_file.save_json(machine.beside(), "ha-history", b"HIST", rows)
    history = opened(machine)
    await history.load()
    for revision in range(MOST_CHANGES, MOST_CHANGES + 5):
        await history.add(change(revision))

    again = opened(machine)
    await again.load()

    assert [each.revision for each in again.changes] == list(range(5, MOST_CHANGES + 5))


@under(run)
async def test_a_full_disk_keeps_a_change_from_the_file_and_not_from_operators() -> None:
    machine = Machine(random.Random(1))
    machine.open()
    history = opened(machine)
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    await history.add(change(1))
    machine.disk.capacity_bytes = BOUNDLESS

    again = opened(machine)
    await again.load()

    assert (history.changes, again.changes) == ((change(1),), ())


def test_the_history_arrives_as_it_was_sent_in_parts() -> None:
    changes = [change(revision) for revision in range(250)]

    parts = [ha_changes(part) for part in ha_history_responses(changes)]

    assert len(parts) == 3
    assert [each for part in parts for each in part] == changes
