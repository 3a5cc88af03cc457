"""In a whole group, every copy has its next segment ready before it is needed."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from dittomq.client import Ack, AsyncClient
from tests.simulation.disk import PAGE, Inode
from tests.simulation.group import SYNC, Group, play
from tests.support.virtual_time import played_by

SPARE = "dittomq/tmp-segment"


@played_by(play)
async def test_master_and_slave_roll_into_segments_that_were_there_before(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    await asyncio.sleep(1)
    names = {name: group.node(name).disk.names for name in ("a0", "a1")}
    spares = {name: held.files[SPARE] for name, held in names.items()}
    sizes = [spare.size for spare in spares.values()]

    async with mq.producer(Ack.REPLICA_FLUSHED) as producer:
        while not _segments_of(names["a1"].files, spares["a1"]):
            await producer.publish("orders", bytes(8_000), queue=0)

    assert sizes[0] == sizes[1] > 0
    for name, held in names.items():
        assert len(_segments_of(held.files, spares[name])) == 1, f"{name} took another file"


def test_a_pause_of_some_seconds_is_enough_to_write_zeros_ahead() -> None:
    segment = 8 * 1024 * 1024

    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer() as producer:
            await producer.publish("orders", b"the first segment is there", queue=0)
        await asyncio.sleep(2)

        files = group.node("a0").disk.names.files
        written = [len(inode.pages) * PAGE for path, inode in files.items() if path == SPARE or path.startswith("commitlog/")]
        assert written == [segment, segment]

    play(story, replace(SYNC, segment_bytes=segment))


def _segments_of(files: Mapping[str, Inode], inode: Inode) -> list[str]:
    return [path for path, held in files.items() if held is inode and path.startswith("commitlog/")]
