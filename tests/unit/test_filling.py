"""What a copy notes of itself while it may lack what was acknowledged in its name."""

import asyncio
import random
from collections.abc import Generator

from dittomq.offsets import PhysicalOffset
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
        filling.holds(PhysicalOffset(0))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(files.run(slow_disk()))
            await asyncio.sleep(0)
            tasks.create_task(filling.look_after())
            await asyncio.sleep(0)
            await filling.begin()

        assert filling.goes_on
        assert storage.exists("dittomq/filling")

    run(story())


def slow_disk() -> Generator[None, None, None]:
    for _ in range(10):
        yield
