"""What is made of a table's rows is right after any change, and made again for those only that have changed."""

from dataclasses import dataclass

from dittomq.metadata.made_of_rows import MadeOfRows, differing
from tests.support.replayable_chance import replayable


@dataclass(frozen=True)
class Row:
    """Equal ones are not the same."""

    name: str


def test_all_differences_lie_in_the_stretch_and_its_ends_differ() -> None:
    chance = replayable()
    known = [Row(str(number)) for number in range(4)]
    for _ in range(2_000):
        before, now = (chance.choices(known, k=chance.randrange(6)) for _ in range(2))

        where = differing(before, now)

        assert list(map(id, before[: where.start])) == list(map(id, now[: where.start]))
        assert list(map(id, before[where.before_end :])) == list(map(id, now[where.now_end :]))
        old, new = before[where.start : where.before_end], now[where.start : where.now_end]
        assert not old or not new or (old[0] is not new[0] and old[-1] is not new[-1])


def test_what_is_made_is_of_the_newest_rows_after_any_changes() -> None:
    chance, made = replayable(), MadeOfRows[Row, str](lambda row: f"<{row.name}>")
    rows: list[Row] = []
    for number in range(1_000):
        at = chance.randrange(len(rows) + 1)
        rows[at : at + chance.randrange(3)] = [Row(f"{number}.{each}") for each in range(chance.randrange(3))]

        assert made.of(rows) == tuple(f"<{row.name}>" for row in rows)


def test_only_changed_rows_are_made_again() -> None:
    asked: list[str] = []
    made = MadeOfRows[Row, None](lambda row: asked.append(row.name))
    rows = [Row("a"), Row("b"), Row("c")]
    first = made.of(rows)

    assert made.of(list(rows)) is first
    made.of([rows[0], Row("b2"), rows[2]])

    assert asked == ["a", "b", "c", "b2"]
