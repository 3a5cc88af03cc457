"""Consumer offsets: what is newer, what has changed since a version, and a whole copy of one version while commits go on."""

import random
import time
from collections.abc import Iterable

import pytest

from dittomq.errors import InvalidField, VersionConflict
from dittomq.metadata.formats import CONSUMER_OFFSETS, decode, encode
from dittomq.metadata.offset_file import OffsetFile
from dittomq.metadata.offset_table import Committed, Name, NameOffsets, OffsetTable, add_rows
from dittomq.metadata.rows import ConsumerOffset
from dittomq.metadata.tables import Ask, Table, sorted_rows
from dittomq.offsets import Epoch
from dittomq.routes import DataVersion
from tests.support.replayable_chance import replayable

NAME = ("orders", "billing")


def row(offset: int, queue: int = 0, resets: int = 0, *, group: str = "billing", topic: str = "orders", of: int = 0) -> ConsumerOffset:
    return ConsumerOffset(topic, group, queue, offset, resets, of)


def table(*rows: ConsumerOffset) -> OffsetTable:
    made = OffsetTable()
    made.put(rows, 1, 1_000)
    return made


def follow(master: OffsetTable, slave: OffsetTable, page_size: int = 7) -> str:
    """Let the slave take over what the master has, as OffsetPuller does; says how."""
    page = master.answer(Ask(known=slave.version, page_size=page_size), takes_changes=True)
    if page.not_modified:
        return "nothing"
    if page.is_delta:
        parts = [page]
        while parts[-1].has_more:
            parts.append(master.answer(Ask(known=parts[-1].version, page_size=page_size), takes_changes=True))
        for part in parts:
            slave.apply(part.rows, part.removed, part.version)
        return "changes"
    slave.load(by_name(whole(master, page_size)), page.version)
    return "whole"


def by_name(rows: Iterable[ConsumerOffset]) -> dict[Name, NameOffsets]:
    made: dict[Name, NameOffsets] = {}
    add_rows(made, rows)
    return made


def whole(master: OffsetTable, page_size: int) -> list[ConsumerOffset]:
    page = master.answer(Ask(page_size=page_size))
    rows = list(page.rows)
    while page.next_token:
        page = master.answer(Ask(page_size=page_size, page_token=page.next_token))
        rows += page.rows
    return rows


@pytest.mark.parametrize(
    ("new", "kept"),
    [
        (row(6), Committed(6)),
        (row(4), Committed(5)),
        (row(4, resets=1), Committed(4, 1)),
        (row(2, of=9), Committed(2)),
    ],
    ids=["higher", "lower", "reset", "of another group of that name"],
)
def test_offset_moves_back_only_by_a_reset_or_in_another_group(new: ConsumerOffset, kept: Committed) -> None:
    offsets = table(row(5))

    offsets.put([new], 1, 1_000)

    assert offsets.get(NAME, 0) == kept


def test_commit_from_before_a_reset_changes_nothing() -> None:
    offsets = table(row(5), row(1, resets=1))
    version = offsets.version

    assert not offsets.put([row(9, resets=0)], 1, 2_000)
    assert (offsets.get(NAME, 0), offsets.version) == (Committed(1, 1), version)


def test_group_made_again_has_none_of_the_offsets_of_the_former_one() -> None:
    offsets = table(row(5, 0, of=1), row(6, 1, of=1))

    offsets.put([row(2, 0, of=2)], 1, 1_000)

    assert (offsets.get(NAME, 0), offsets.get(NAME, 1)) == (Committed(2), None)


def test_slave_gets_only_what_has_changed_since_its_version() -> None:
    master, slave = table(*(row(1, queue) for queue in range(100))), OffsetTable()
    assert follow(master, slave) == "changes"
    master.put([row(7, 3), row(8, 4)], 1, 2_000)
    master.put([row(9, 3)], 1, 2_000)

    page = master.answer(Ask(known=slave.version), takes_changes=True)

    assert page.is_delta
    assert sorted(page.rows, key=lambda each: each.queue) == [row(9, 3), row(8, 4)]
    assert master.answer(Ask(known=page.version), takes_changes=True).not_modified


def test_only_a_gap_causes_a_whole_pull() -> None:
    master, slave = OffsetTable(max_changes=10), OffsetTable()
    follow(master, slave)
    for offset in range(50):
        master.put([row(offset, offset % 5)], 1, 1_000)

    assert follow(master, slave) == "whole"
    master.put([row(99)], 1, 1_000)
    assert follow(master, slave) == "changes"
    assert list(slave.rows()) == list(master.rows())


def test_version_of_another_master_of_equal_number_is_a_gap() -> None:
    master, slave = table(row(1), row(2)), OffsetTable()
    slave.load(by_name([row(7)]), DataVersion(1, 999, 1))
    master.put([row(3)], 1, 1_001)

    assert follow(master, slave) == "whole"
    assert list(slave.rows()) == [row(3)]


def test_pages_are_of_one_version_while_commits_go_on() -> None:
    master = table(*(row(1, queue, topic=f"t{name}") for name in range(4) for queue in range(3)))
    before = list(master.rows())
    page = master.answer(Ask(page_size=2))
    rows = list(page.rows)
    offset = 10
    while page.next_token:
        offset += 1
        master.put([row(offset, 1, topic="t1"), row(offset, 2, topic="t3"), row(offset, topic="t00")], 1, 1_000)
        master.remove([("t2", "billing")], 1, 1_000)
        page = master.answer(Ask(page_size=2, page_token=page.next_token))
        rows += page.rows

    assert rows == before


def test_token_of_another_version_or_of_another_list_is_refused() -> None:
    master = table(*(row(1, queue) for queue in range(4)))
    token = master.answer(Ask(page_size=2)).next_token
    state, counter, rest = token.split(".", 2)

    with pytest.raises(VersionConflict):
        master.answer(Ask(page_token=f"{state}.{int(counter) + 1}.{rest}"))
    with pytest.raises(VersionConflict):
        master.answer(Ask(page_token=f"{state}.{counter}.{rest.partition('.')[0]}.999.0"))
    for wrong in ("x", "1.2.3.4", "1.2.3.4.-5"):
        with pytest.raises(InvalidField):
            master.answer(Ask(page_token=wrong))
    with pytest.raises(InvalidField):
        master.answer(Ask(page_size=10_001))


def test_new_masters_table_is_newer_and_one_that_never_held_anything_is_not() -> None:
    offsets, empty = table(row(1)), OffsetTable()
    before = offsets.version

    offsets.lead(Epoch(4), 500)
    empty.lead(Epoch(4), 500)

    assert offsets.version.is_newer_than(before)
    assert offsets.version.state_version == 4
    assert empty.version == DataVersion()


def test_offsets_beyond_their_queue_are_moved_back_to_its_end_as_a_reset_does() -> None:
    offsets = table(row(5, 0, of=3), row(6, 1, resets=2, of=3), row(7, 2, of=3))

    found = offsets.beyond(offsets.names, {("orders", 0): 5, ("orders", 1): 4})

    assert [(each.row, each.was) for each in found] == [(row(4, 1, 3, of=3), 6), (row(0, 2, 1, of=3), 7)]


def test_slaves_that_follow_by_any_steps_hold_the_masters_rows_of_its_version() -> None:
    chance = replayable()
    master, slaves = OffsetTable(max_changes=20), [OffsetTable() for _ in range(3)]
    for step in range(2_000):
        topic, group = f"t{chance.randrange(6)}", f"g{chance.randrange(3)}"
        match chance.randrange(10):
            case 0:
                master.remove([(topic, group)], 1, step)
            case 1:
                follow(master, chance.choice(slaves), chance.randrange(1, 9))
            case 2:
                master.put([row(step, resets=step, topic=topic, group=group)], 1, step)
            case _:
                count = chance.randrange(1, 5)
                master.put([row(step + number, number, topic=topic, group=group, of=step // 500) for number in range(count)], 1, step)
    for slave in slaves:
        follow(master, slave, 3)
        assert list(slave.rows()) == list(master.rows())
        assert slave.version == master.version


def test_a_commit_costs_the_same_in_a_table_of_a_hundred_times_as_many() -> None:
    def seconds(names: int) -> float:
        offsets = OffsetTable()
        offsets.load(by_name(row(1, queue, topic=f"t{name}") for name in range(names) for queue in range(4)), DataVersion(1, 1, 1))
        chance, times = random.Random(1), []
        for offset in range(2_000):
            change = row(offset + 2, 1, topic=f"t{chance.randrange(names)}")
            began = time.perf_counter()
            offsets.put([change], 1, 1)
            times.append(time.perf_counter() - began)
        return sorted(times)[1_000]

    assert seconds(50_000) < 10 * seconds(500)


def test_file_of_pieces_is_what_the_table_encodes_to() -> None:
    chance, offsets, file = replayable(), OffsetTable(), OffsetFile()
    offsets.other_fields = {"x": {"y": [1, "z"]}}
    for step in range(300):
        name = {"topic": f"t{chance.randrange(5)}", "group": f"g{chance.randrange(3)}"}
        offsets.put([row(step, chance.randrange(12), chance.randrange(2) * step, **name, of=chance.randrange(2) << 33)], 1, step)
        if step % 7 == 0:
            offsets.remove([(name["topic"], name["group"])], 1, step)
        if step % 11 == 0 or step == 299:
            while not file.take_changes(offsets, 2):
                pass
            written = file.encode(file.snapshot(offsets))
            assert written == encode(CONSUMER_OFFSETS, Table(offsets.version, sorted_rows(offsets.rows()), offsets.other_fields))
            assert decode(CONSUMER_OFFSETS, written).rows == sorted_rows(offsets.rows())
