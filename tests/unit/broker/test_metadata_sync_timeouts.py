"""How long a master, or a slave that is asked for its tables, may be silent, and what is known of the tables then."""

import asyncio
from pathlib import Path

import pytest

from dittomq.broker.metadata_sync import PAGE_DEADLINE_S, take_tables
from dittomq.errors import DiskFull, Unavailable
from dittomq.metadata.formats import KINDS, TOPICS
from tests.support.fake_master import FakeMaster, Slave, running
from tests.support.metadata_node import MetadataNode, run
from tests.support.virtual_time import under


@under(run)
async def test_silent_master_is_asked_for_each_table_once_a_round(tmp_path: Path) -> None:
    """It is silent for a page's deadline."""
    master = FakeMaster()
    master.silent_about = {kind.name for kind in KINDS}

    await Slave(tmp_path, master).puller.pull_once()

    assert round(asyncio.get_running_loop().time(), 1) == PAGE_DEADLINE_S
    assert len(master.asked) == len(KINDS)


@pytest.mark.parametrize("table", [kind.name for kind in KINDS])
@under(run)
async def test_whoever_takes_all_tables_gives_up_after_one_silence(table: str, tmp_path: Path) -> None:
    slave, node = FakeMaster(), MetadataNode.make(tmp_path)
    slave.silent_about = {table}

    with pytest.raises(Unavailable, match=f"the table of {table}"):
        await take_tables(slave, node.metadata, node.clock)

    assert round(asyncio.get_running_loop().time(), 1) == PAGE_DEADLINE_S


@under(run)
async def test_slave_without_room_to_note_where_queues_begin_does_it_later(tmp_path: Path) -> None:
    """It says so."""
    master = FakeMaster()
    master.topics("orders", counter=1, minimums={("orders", 0): 7})
    slave = Slave(tmp_path, master)
    await slave.puller.pull_once()
    slave.store.hidden.clear()
    master.silent_about = {TOPICS.name}

    def full() -> None:
        raise DiskFull("a/1", 0, 65_536)

    slave.before_hiding = full
    async with running(slave):
        await asyncio.sleep(1)
        assert "must be free" in slave.puller.status[TOPICS.name].problem
        slave.before_hiding = lambda: None
        await asyncio.sleep(300)

    assert slave.store.hidden == {("orders", 0): 7}
