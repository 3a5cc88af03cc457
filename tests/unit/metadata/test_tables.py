"""Tables have versions, are never changed in place, and are read in pages of one version."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.errors import InvalidField, VersionConflict
from dittomq.metadata.tables import Ask, Table, TablePage, answer, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from tests.support.replayable_chance import replayable


def table_of(count: int, version: DataVersion | None = None) -> Table[TopicConfig]:
    return Table(version or DataVersion(1, 1_000, count), sorted_rows(TopicConfig(f"t{number:05}") for number in range(count)))


def all_pages(table: Table[TopicConfig], page_size: int) -> list[TablePage[TopicConfig]]:
    pages = [answer("topics", table, Ask(page_size=page_size))]
    while pages[-1].next_token:
        pages.append(answer("topics", table, Ask(page_size=page_size, page_token=pages[-1].next_token)))
    return pages


@given(st.integers(0, 60), st.integers(1, 12))
def test_pages_hold_every_row_once_and_in_order(count: int, page_size: int) -> None:
    table = table_of(count)

    pages = all_pages(table, page_size)

    assert [row for page in pages for row in page.rows] == list(table.rows.values())
    assert all(page.version == table.version and not page.not_modified for page in pages)
    assert len(pages) == max(1, -(-count // page_size))


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 7))
def test_pages_hold_every_minimum_once_behind_the_last_row(count: int, deleted: int, page_size: int) -> None:
    minimums = {(f"t{number // 3:05}", number % 3): 10 * number for number in range(deleted)}
    table = table_of(count).hiding(minimums)

    pages = all_pages(table, page_size)

    assert [row for page in pages for row in page.rows] == list(table.rows.values())
    assert [each for page in pages for each in page.minimums.items()] == list(minimums.items())
    assert all(len(page.rows) + len(page.minimums) <= page_size for page in pages)
    assert len(pages) == max(1, -(-(count + deleted) // page_size))


def test_a_minimum_never_goes_back() -> None:
    table = table_of(1).hiding({("b", 0): 7, ("b", 1): 3})

    assert table.hiding({("b", 0): 5, ("b", 1): 4, ("a", 2): 1}).minimums == {("a", 2): 1, ("b", 0): 7, ("b", 1): 4}
    assert table.changed([], epoch=2, now_ms=1).minimums == table.minimums


@pytest.mark.parametrize("count", [1, 2_000, 2_001, 4_001])
def test_the_last_row_is_there_when_one_row_stands_on_the_last_page(count: int) -> None:
    pages = all_pages(table_of(count), 0)

    assert sum(len(page.rows) for page in pages) == count
    assert pages[-1].rows[-1].name == f"t{count - 1:05}"


def test_a_caller_with_the_newest_version_gets_no_rows() -> None:
    table = table_of(5)

    page = answer("topics", table, Ask(known=table.version))

    assert page == TablePage(table.version, not_modified=True)


@pytest.mark.parametrize("known", [DataVersion(1, 1_000, 4), DataVersion(1, 1_001, 5), DataVersion(2, 1_000, 5)])
def test_a_caller_with_any_other_version_gets_the_rows(known: DataVersion) -> None:
    assert len(answer("topics", table_of(5), Ask(known=known)).rows) == 5


def test_a_token_of_another_version_is_refused_as_changed() -> None:
    token = answer("topics", table_of(5), Ask(page_size=2)).next_token

    with pytest.raises(VersionConflict, match="read again from the first page"):
        answer("topics", table_of(6), Ask(page_size=2, page_token=token))


@pytest.mark.parametrize("token", ["x", "1.2.3", "1.5.1000.-2", "1.5.1000.2 ", "1.5.1000.٢", "9" * 1_000, "1.5.1000." + "9" * 30])
def test_a_token_that_was_never_given_out_is_refused(token: str) -> None:
    with pytest.raises(InvalidField, match="next_page_token"):
        answer("topics", table_of(5), Ask(page_token=token))


@pytest.mark.parametrize("size", [-1, 10_001, 2**31 - 1])
def test_a_page_size_outside_its_limits_is_refused(size: int) -> None:
    with pytest.raises(InvalidField, match="page_size"):
        answer("topics", table_of(5), Ask(page_size=size))


def test_a_change_makes_a_new_table_and_leaves_the_old_one_alone() -> None:
    old = table_of(1, DataVersion(1, 500, 7))

    new = old.changed([TopicConfig("b"), TopicConfig("a")], epoch=2, now_ms=400)

    assert list(old.rows) == ["t00000"]
    assert list(new.rows) == ["a", "b"]
    assert new.version == DataVersion(2, 400, 8)


@given(st.integers(0, 3), st.integers(0, 2_000), st.integers(0, 3))
def test_a_change_is_always_newer_whatever_the_clock_and_the_epoch_say(epoch: int, now_ms: int, counter: int) -> None:
    version = DataVersion(2, 1_000, counter)

    assert version.next(epoch, now_ms).is_newer_than(version)


def test_versions_are_ordered_by_epoch_then_counter_then_time() -> None:
    ordered = [DataVersion(0, 9, 9), DataVersion(1, 9, 1), DataVersion(1, 1, 2), DataVersion(1, 2, 2)]

    for older, newer in pairwise(ordered):
        assert newer.is_newer_than(older)
        assert not older.is_newer_than(newer)
        assert not older.is_newer_than(older)


def test_a_row_is_put_in_its_place_and_taken_out_again() -> None:
    before = table_of(5)

    for name in ("", "zzz", "t00003"):
        after = before.with_row(TopicConfig(name, 9, 9), 3, 2_000)
        assert list(after.rows) == sorted({*before.rows, name})
        assert after.rows[name] == TopicConfig(name, 9, 9)
        assert after.version == before.version.next(3, 2_000)
        assert list(after.without(name, 3, 2_000).rows) == sorted(before.rows.keys() - {name})


def changed_by_chance(table: Table[TopicConfig], chance: random.Random, number: int) -> Table[TopicConfig]:
    """One change, as masters make them."""
    name = f"t{chance.randrange(12)}"
    match chance.randrange(8):
        case 0:
            return table.renewed(2, number).hiding({(name, 1): number})
        case 1:
            return table.changed([*table.rows.values(), TopicConfig(name, 9, 9)], 2, number)
        case 2 | 3:
            return table.without(name, 2, number).hiding({(name, queue): number for queue in range(2)})
        case _:
            return table.with_row(TopicConfig(name, number, number), 2, number)


def test_slaves_that_take_changes_or_pages_hold_the_masters_table() -> None:
    chance = replayable()
    master, slaves, deltas = table_of(5), [table_of(5) for _ in range(3)], 0
    for number in range(2_000):
        master = changed_by_chance(master, chance, number)
        at = chance.randrange(len(slaves))
        page = answer("topics", master, Ask(known=slaves[at].version, page_size=10_000), takes_changes=True)
        if page.is_delta:
            slaves[at], deltas = slaves[at].following(page), deltas + 1
        elif not page.not_modified:
            slaves[at] = Table(page.version, sorted_rows(page.rows), {}, page.minimums)
        if chance.randrange(50) == 0:
            master, slaves[at] = slaves[at], master  # it is elected, and what it did not have is lost
            slaves = [master] * len(slaves)

        assert slaves[at] == master or slaves[at].version != master.version
        assert list(slaves[at].rows) == sorted(slaves[at].rows)

    assert deltas > 200


def test_one_changed_row_is_all_that_a_slave_is_sent() -> None:
    before = table_of(100)
    master = before.with_row(TopicConfig("new"), 1, 2_000).renewed(2, 3_000).without("t00007", 2, 4_000).hiding({("t00007", 0): 5})

    page = answer("topics", master, Ask(known=before.version), takes_changes=True)

    assert (page.rows, page.removed, dict(page.minimums)) == ((TopicConfig("new"),), ("t00007",), {("t00007", 0): 5})
    assert before.following(page) == master


@pytest.mark.parametrize(
    "known",
    [None, DataVersion(), DataVersion(1, 999, 100), DataVersion(1, 1_000, 99)],
    ids=["none", "the first", "another master's", "an older one"],
)
def test_who_holds_a_version_that_is_not_remembered_is_sent_all(known: DataVersion | None) -> None:
    page = answer("topics", table_of(100).with_row(TopicConfig("new"), 1, 2_000), Ask(known=known), takes_changes=True)

    assert not page.is_delta
    assert len(page.rows) == 101


def test_table_that_changes_for_ever_remembers_a_bounded_number_of_changes() -> None:
    table = table_of(1)
    for number in range(2_000):
        table = table.with_row(TopicConfig("t00000", number), 1, number)

    assert len(table.steps) <= 500
