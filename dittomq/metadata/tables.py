"""Versioned tables: immutable, changed by making the next version, read in pages of one version."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Generic, Protocol, Self, TypeVar

from dittomq.errors import InvalidField, VersionConflict
from dittomq.metadata.rows import Json
from dittomq.offsets import NO_EPOCH, Epoch
from dittomq.routes import DataVersion

MAX_PAGE_ROWS = 10_000
DEFAULT_PAGE_ROWS = 2_000
_MAX_STEPS = 500

# The version and the index of the page's first row.
_TOKEN = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20}){3}")


class Row(Protocol):
    """A row knows its key; keys of one table are of one type and sort."""

    @property
    def key(self) -> Any: ...


QueueMinimums = Mapping[tuple[str, int], int]
"""Queues of deleted topics, and of those made again since: (topic, queue) → what lies below this queue offset is never read again."""

R = TypeVar("R", bound=Row)
R_co = TypeVar("R_co", bound=Row, covariant=True)


@dataclass(frozen=True, slots=True)
class _TableStep:
    """One change of a table: the version before it, and what it changed."""

    before: DataVersion
    keys: tuple[Any, ...] = ()
    minimums: QueueMinimums = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table(Generic[R_co]):
    """One version of a table: rows by key, in the order of their keys. `other_fields`: the rest of RocketMQ's file, kept as it is.

    `minimums` belong to the topics, the other tables have none. They only grow: a topic that is made again keeps them. `steps` are the
    last changes, of which the last one led to this version: for who holds a version before, see `answer`.
    """

    version: DataVersion = field(default_factory=DataVersion)
    rows: Mapping[Any, R_co] = field(default_factory=dict)
    other_fields: Mapping[str | int, Json] = field(default_factory=dict)
    minimums: QueueMinimums = field(default_factory=dict)
    steps: tuple[_TableStep, ...] = field(default=(), compare=False, repr=False)

    def changed(self, rows: Iterable[R_co], epoch: int, now_ms: int) -> Self:
        """The next version of this table, with these rows instead; what of them has changed is not remembered."""
        return replace(self, version=self.version.next(epoch, now_ms), rows=sorted_rows(rows), steps=())

    def renewed(self, epoch: int, now_ms: int) -> Self:
        """The next version of this table, with the same rows."""
        return replace(self, version=self.version.next(epoch, now_ms), steps=self._with_step(_TableStep(self.version)))

    def with_row(self, row: R_co, epoch: int, now_ms: int) -> Self:  # type: ignore[misc]  # nothing is put into this table
        """The next version of this table, with this row beside the others, or in the place of one with its key."""
        return self._with_rows({row.key: row}, self.version.next(epoch, now_ms))

    def without(self, key: object, epoch: int, now_ms: int) -> Self:
        """The next version of this table, without the row of that key."""
        return self._with_rows({key: None}, self.version.next(epoch, now_ms))

    def hiding(self, minimums: QueueMinimums) -> Self:
        """This version, which has just been made, with these minimums too; a queue keeps the higher one."""
        higher = {key: low for key, low in minimums.items() if key not in self.minimums or low > self.minimums[key]}
        if not higher:
            return self
        steps = self.steps
        if steps:
            steps = (*steps[:-1], replace(steps[-1], minimums={**steps[-1].minimums, **higher}))
        return replace(self, minimums=dict(sorted({**self.minimums, **higher}.items())), steps=steps)

    def following(self, page: "TablePage[R_co]") -> Self:
        """This table with what has changed up to the page's version."""
        changed: dict[Any, R_co | None] = {**dict.fromkeys(page.removed), **{row.key: row for row in page.rows}}
        return self._with_rows(changed, page.version).hiding(page.minimums)

    def _with_rows(self, changed: Mapping[Any, R_co | None], version: DataVersion) -> Self:
        """That version, with these rows by key; None removes one."""
        new = {key: row for key, row in changed.items() if row is not None and key not in self.rows}
        if len(new) == len(changed) == 1:
            rows = _with_new_row(self.rows, *new.popitem())
        else:
            rows = {**self.rows, **{key: row for key, row in changed.items() if row is not None}}
            for key in [key for key, row in changed.items() if row is None]:
                rows.pop(key, None)
            if new:
                rows = {key: rows[key] for key in sorted(rows)}
        return replace(self, version=version, rows=rows, steps=self._with_step(_TableStep(self.version, tuple(changed))))

    def _with_step(self, step: _TableStep) -> tuple[_TableStep, ...]:
        return (*self.steps[1 - _MAX_STEPS :], step)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a caller wants of a table. `known`: the version it holds, None for none; `page_size` 0: the table's default."""

    known: DataVersion | None = None
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class TablePage(Generic[R_co]):
    """Rows of one version. `not_modified`: the caller holds this version already, and gets no rows. `next_token` empty: the last page.

    `is_delta`: these are the rows and minimums that have changed since the version that the caller holds; rows of the keys in `removed`
    are gone.
    Behind the last row come the table's minimums, counted as rows. `led`: the epoch in which who answers leads, which each of its tables
    was given that ever held something; 0: it does not lead.
    """

    version: DataVersion
    rows: tuple[R_co, ...] = ()
    next_token: str = ""
    not_modified: bool = False
    minimums: QueueMinimums = field(default_factory=dict)
    led: Epoch = NO_EPOCH
    is_delta: bool = False
    removed: tuple[Any, ...] = ()


def sorted_rows(rows: Iterable[R]) -> dict[Any, R]:
    """Rows by key, in the order of their keys; of two with one key the last one stays."""
    by_key = {row.key: row for row in rows}
    keys = sorted(by_key)
    return by_key if keys == list(by_key) else {key: by_key[key] for key in keys}


def _with_new_row(rows: Mapping[Any, R], key: Any, row: R) -> dict[Any, R]:
    """Also with that row, in order. Rows lie apart in memory: of 60,000 each look at all counts, and sorting them takes two more."""
    keys, values = list(rows), list(rows.values())
    at = bisect_left(keys, key)
    keys.insert(at, key)
    values.insert(at, row)
    return dict(zip(keys, values, strict=True))


def answer(name: str, table: Table[R], ask: Ask, *, takes_changes: bool = False) -> TablePage[R]:
    """The page asked for, or that the caller's version is the newest. A token of another version raises VersionConflict.

    `takes_changes`: what has changed since the caller's version is enough, where the table remembers that.
    """
    if not 0 <= ask.page_size <= MAX_PAGE_ROWS:
        raise InvalidField("page_size", f"{ask.page_size:,} is outside 0 to {MAX_PAGE_ROWS:,}; 0 means {DEFAULT_PAGE_ROWS:,}")
    if ask.known == table.version:
        return TablePage(table.version, not_modified=True)
    if takes_changes and not ask.page_token and (delta := _delta(table, ask.known)) is not None:
        return delta
    start = _start(name, table, ask.page_token)
    end = start + (ask.page_size or DEFAULT_PAGE_ROWS)
    count = len(table.rows)
    rows = tuple(islice(table.rows.values(), start, end))
    minimums = dict(islice(table.minimums.items(), max(0, start - count), max(0, end - count)))
    next_token = _token(table.version, end) if end < count + len(table.minimums) else ""
    return TablePage(table.version, rows, next_token, minimums=minimums)


def _delta(table: Table[R], known: DataVersion | None) -> TablePage[R] | None:
    """None where that is not known. Who holds no version yet may have minimums of its own, and gets all."""
    first = next((index for index, step in enumerate(table.steps) if step.before == known), None)
    if first is None or known == DataVersion():
        return None
    keys = dict.fromkeys(chain.from_iterable(step.keys for step in table.steps[first:]))
    minimums = {key: table.minimums[key] for step in table.steps[first:] for key in step.minimums}
    if len(keys) + len(minimums) > MAX_PAGE_ROWS:
        return None
    rows = tuple(table.rows[key] for key in keys if key in table.rows)
    removed = tuple(key for key in keys if key not in table.rows)
    return TablePage(table.version, rows, minimums=minimums, is_delta=True, removed=removed)


def _token(version: DataVersion, start: int) -> str:
    return f"{version}.{start}"


def _start(name: str, table: Table[R], token: str) -> int:
    """Index of the first row of the page that `token` names."""
    if not token:
        return 0
    if not _TOKEN.fullmatch(token):
        raise InvalidField("page_token", "is not a token of this list; take next_page_token of the page before, or none for the first page")
    start = int(token.rpartition(".")[2])
    if token != _token(table.version, start):
        raise VersionConflict(name)
    return start
