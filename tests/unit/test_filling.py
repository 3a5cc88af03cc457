"""What a copy notes of itself while it may lack what was acknowledged in its name."""

import asyncio
import random
from collections.abc import Generator

import pytest

from dittomq.commitlog.disk.storage import replace_file
from dittomq.offsets import LAST_EPOCH, NO_EPOCH, Epoch, PhysicalOffset
from services.slave.filling import Filling
from tests.support.lanes import InlineLane
from tests.support.metadata_node import run
from tests.support.stores import Machine


def test_a_copy_that_gives_up_bytes_while_its_last_note_is_being_taken_away_is_noted_anew() -> None:
    async def story() -> None:
        storage, files = Machine(random.Random(1)).beside(), InlineLane()
        filling = Filling("a/1", storage, files)
        await filling.begin()
        filling.master_ends_at(PhysicalOffset(0))
        filling.holds(PhysicalOffset(0), Epoch(1))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(files.run(slow_disk()))
            await asyncio.sleep(0)
            tasks.create_task(filling.look_after())
            await asyncio.sleep(0)
            await filling.begin()

        assert filling.goes_on
        assert storage.exists("dittomq/filling")

    run(story())


@pytest.mark.parametrize("newest", [1, 5])
def test_it_stays_noted_which_epoch_was_the_newest_when_the_copy_was_whole_again_but_for_the_first_of_a_group(newest: int) -> None:
    async def story() -> None:
        machine = Machine(random.Random(1))
        await fill(machine, Epoch(newest))

        assert machine.beside().exists("dittomq/filled") == (newest > 1)
        assert not machine.beside().exists("dittomq/filling")
        assert (await loaded(machine)).filled_in == (newest if newest > 1 else 0)

    run(story())


def test_a_damaged_note_of_it_counts_as_that_of_any_epoch() -> None:
    async def story() -> None:
        machine = Machine(random.Random(1))
        await fill(machine, Epoch(5))
        replace_file(machine.beside(), "dittomq/filled", b"rotten")

        assert (await loaded(machine)).filled_in == LAST_EPOCH

    run(story())


@pytest.mark.parametrize(("newest", "told"), [(1, NO_EPOCH), (2, Epoch(2))])
def test_who_was_filled_in_the_first_epoch_of_its_group_led_on_no_earlier_disk_before_its_next_start_too(newest: int, told: Epoch) -> None:
    async def story() -> None:
        machine = Machine(random.Random(1))
        filling = await fill(machine, Epoch(newest))

        assert (filling.filled_in, (await loaded(machine)).filled_in) == (told, told)

    run(story())


@pytest.mark.parametrize(("state", "told"), [("filled", 5), ("being filled", 7), ("damaged", 7)])
def test_what_a_node_leads_in_from_now_on_it_led_in_on_this_disk_whatever_the_note_says(state: str, told: int) -> None:
    async def story() -> None:
        machine = Machine(random.Random(1))
        await fill(machine, Epoch(5))
        if state == "damaged":
            replace_file(machine.beside(), "dittomq/filled", b"rotten")
        filling = await loaded(machine)
        filling.goes_on = state == "being filled"

        assert filling.filled_before(Epoch(8)) == told

    run(story())


async def fill(machine: Machine, newest: Epoch) -> Filling:
    filling = Filling("a/1", machine.beside(), InlineLane())
    await filling.begin()
    filling.master_ends_at(PhysicalOffset(0))
    filling.holds(PhysicalOffset(0), newest)
    await filling.look_after()
    return filling


async def loaded(machine: Machine) -> Filling:
    filling = Filling("a/1", machine.beside(), InlineLane())
    await filling.load(machine.open())
    return filling


def slow_disk() -> Generator[None, None, None]:
    for _ in range(10):
        yield
