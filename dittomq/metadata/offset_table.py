"""Consumer offsets of one node, by topic, group and queue: a commit costs the same however many there are.

The table remembers its last changes, so that whoever holds one of its last versions needs only what has changed since. A whole copy is
read in pages of one version: what changes under a reader is kept for it as it was.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from dittomq.errors import InvalidField, VersionConflict
from dittomq.metadata.rows import ConsumerOffset, Json
from dittomq.metadata.tables import DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS, Ask
from dittomq.offsets import NO_EPOCH, Epoch
from dittomq.routes import DataVersion

MAX_CHANGES = 100_000
"""So many changes of queues are remembered."""
_MAX_READERS = 4
_MAX_KEPT_ROWS = 200_000  # of one reader of a whole copy

# The version, the index of the page's first name, and the queue of it that the page begins with.
_TOKEN = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20}){4}")

Name = tuple[str, str]
"""Topic and consumer group."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The next queue offset that a group reads of a queue, and how often that was reset."""

    offset: int
    resets: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Of two the greater one is newer."""
        return self.resets, self.offset


@dataclass(slots=True)
class NameOffsets:
    """Offsets of one group in one topic: by queue. `resets` holds only the queues that were reset ever."""

    incarnation: int
    offsets: dict[int, int] = field(default_factory=dict)
    resets: dict[int, int] = field(default_factory=dict)

    def get(self, queue: int) -> Committed | None:
        """None: nothing is committed for that queue."""
        offset = self.offsets.get(queue)
        return None if offset is None else Committed(offset, self.resets.get(queue, 0))

    def put(self, queue: int, committed: Committed) -> None:
        """Whatever is there."""
        self.offsets[queue] = committed.offset
        if committed.resets:
            self.resets[queue] = committed.resets
        else:
            self.resets.pop(queue, None)

    def copy(self) -> "NameOffsets":
        """One that later changes leave alone."""
        return NameOffsets(self.incarnation, dict(self.offsets), dict(self.resets))


def add_rows(by_name: dict[Name, NameOffsets], rows: Iterable[ConsumerOffset]) -> None:
    """Put these rows beside, or in the place of, those that are there."""
    for row in rows:
        name = row.topic, row.group
        of_name = by_name.get(name)
        if of_name is None:
            of_name = by_name[name] = NameOffsets(row.incarnation)
        of_name.offsets[row.queue] = row.offset
        if row.resets:
            of_name.resets[row.queue] = row.resets


@dataclass(frozen=True, slots=True)
class OffsetClamp:
    """An offset that was beyond its queue's end, and the row that moves it back to that."""

    row: ConsumerOffset
    was: int


@dataclass(frozen=True, slots=True)
class OffsetPage:
    """Rows of one version, or, where `is_delta`, what has changed since the version that the caller holds.

    `removed`: of these names the caller drops all rows before it takes `rows`. `has_more`: the next part of a delta is asked for with
    `version`, and only with the last one the caller's rows are those of a version. The other fields are as those of TablePage.
    """

    version: DataVersion
    rows: tuple[ConsumerOffset, ...] = ()
    next_token: str = ""
    not_modified: bool = False
    is_delta: bool = False
    has_more: bool = False
    removed: tuple[Name, ...] = ()
    led: Epoch = NO_EPOCH


@dataclass(slots=True)
class _Copying:
    """Somebody reads a whole copy of `version`. `before`: what has changed since, as it was; None: that name was not there."""

    version: DataVersion
    names: Sequence[Name]
    before: dict[Name, NameOffsets | None] = field(default_factory=dict)
    kept_rows: int = 0


@dataclass(frozen=True, slots=True)
class _OffsetChange:
    """One queue of a name, or, where `queue` is None, the name was removed. `version` came with it, and maybe with others."""

    version: DataVersion
    name: Name
    queue: int | None


class OffsetTable:
    """Not for more than one thread. Each method that changes something makes one new version, unless nothing changes."""

    def __init__(self, max_changes: int = MAX_CHANGES) -> None:
        self.version = DataVersion()
        self.other_fields: Mapping[str | int, Json] = {}
        self.dirty: dict[Name, None] = {}  # names that have changed since somebody last emptied it
        self.led = NO_EPOCH
        self._names: list[Name] = []  # sorted
        self._by_name: dict[Name, NameOffsets] = {}
        self._max_changes = max_changes
        self._base = self.version  # the version before the first of the changes
        self._changes: list[_OffsetChange] = []
        self._readers: dict[DataVersion, _Copying] = {}

    @property
    def names(self) -> Sequence[Name]:
        """Every topic and group with an offset, sorted."""
        return self._names

    def of_name(self, name: Name) -> NameOffsets | None:
        """Not to be changed."""
        return self._by_name.get(name)

    def of_topic(self, topic: str) -> list[tuple[str, NameOffsets]]:
        """By group, in order; not to be changed."""
        names = self._names[bisect_left(self._names, (topic, "")) :]
        return [(name[1], self._by_name[name]) for name in takewhile(lambda name: name[0] == topic, names)]

    def get(self, name: Name, queue: int) -> Committed | None:
        """What is committed; None for nothing."""
        of_name = self._by_name.get(name)
        return None if of_name is None else of_name.get(queue)

    def rows(self) -> Iterator[ConsumerOffset]:
        """All rows in the order of their keys."""
        for name in self._names:
            yield from _rows(name, self._by_name[name])

    def beyond(self, names: Iterable[Name], ends: Mapping[tuple[str, int], int]) -> list[OffsetClamp]:
        """Of these names the offsets beyond the end of their queue; one that is not in `ends`, by (topic, queue), ends at 0."""
        known = [(name, self._by_name[name]) for name in names if name in self._by_name]
        return [
            OffsetClamp(ConsumerOffset(*name, queue, end, of_name.resets.get(queue, 0) + 1, of_name.incarnation), offset)
            for name, of_name in known
            for queue, offset in of_name.offsets.items()
            if offset > (end := ends.get((name[0], queue), 0))
        ]

    def put(self, rows: Iterable[ConsumerOffset], epoch: int, now_ms: int) -> bool:
        """Take the rows that are newer than what is here, as one change; whether there was one.

        A row of another incarnation of its group takes the place of all that the former one committed for the topic.
        """
        newer = [row for row in rows if self.is_newer(row)]
        if newer:
            self._begin(self.version.next(epoch, now_ms))
            for row in newer:
                if self.is_newer(row):  # two of one queue may come together
                    self._set(row)
            self._trim()
        return bool(newer)

    def remove(self, names: Iterable[Name], epoch: int, now_ms: int) -> bool:
        """Forget these names, as one change; whether one of them was here."""
        known = [name for name in names if name in self._by_name]
        if known:
            self._begin(self.version.next(epoch, now_ms))
            for name in known:
                self._drop(name)
            self._trim()
        return bool(known)

    def lead(self, epoch: Epoch, now_ms: int) -> None:
        """A new master's table is newer than all that slaves have applied before. One that never held anything keeps its version."""
        if self._by_name or self.version != DataVersion():
            self._begin(self.version.next(epoch, now_ms))
        self.led = epoch

    def load(self, by_name: dict[Name, NameOffsets], version: DataVersion) -> None:
        """Hold these offsets of that version instead, whole: nothing is known of how it came to be. They are the table's from now on."""
        self.dirty.update(dict.fromkeys(name for name in self._by_name if name not in by_name))
        self.dirty.update(dict.fromkeys(by_name))  # of a dict, so that no name is hashed again
        self._by_name, self._names = by_name, sorted(by_name)
        self._base = self.version = version
        self._changes, self._readers = [], {}

    def apply(self, rows: Iterable[ConsumerOffset], removed: Iterable[Name], version: DataVersion) -> None:
        """What has changed between this version and that one, as its master tells it: rows may go back, after a reset."""
        self._begin(version)
        for name in removed:
            self._drop(name)
        for row in rows:
            self._set(row)
        self._trim()

    def answer(self, ask: Ask, *, takes_changes: bool = False) -> OffsetPage:
        """The page asked for, what has changed, or that nothing has. Raises InvalidField, VersionConflict as the other tables do."""
        if not 0 <= ask.page_size <= MAX_PAGE_ROWS:
            raise InvalidField("page_size", f"{ask.page_size:,} is outside 0 to {MAX_PAGE_ROWS:,}; 0 means {DEFAULT_PAGE_ROWS:,}")
        if ask.known == self.version and not ask.page_token:
            return OffsetPage(self.version, not_modified=True, led=self.led)
        size = ask.page_size or DEFAULT_PAGE_ROWS
        if takes_changes and ask.known is not None and not ask.page_token:
            start = self._position(ask.known)
            if start is not None:
                return self._delta(start, size)
        return self._page(ask.page_token, size)

    def is_newer(self, row: ConsumerOffset) -> bool:
        """Whether `put` would take it."""
        of_name = self._by_name.get((row.topic, row.group))
        if of_name is None or of_name.incarnation != row.incarnation:
            return True
        held = of_name.get(row.queue)
        return held is None or (row.resets, row.offset) > held.order

    def _set(self, row: ConsumerOffset) -> None:
        name = row.topic, row.group
        of_name = self._by_name.get(name)
        if of_name is not None and of_name.incarnation != row.incarnation:
            self._drop(name)
            of_name = None
        self._keep(name)
        if of_name is None:
            of_name = self._by_name[name] = NameOffsets(row.incarnation)
            insort(self._names, name)
        of_name.put(row.queue, Committed(row.offset, row.resets))
        self._record(name, row.queue)

    def _drop(self, name: Name) -> None:
        if name in self._by_name:
            self._keep(name)
            del self._by_name[name]
            del self._names[bisect_left(self._names, name)]
            self._record(name, None)

    def _record(self, name: Name, queue: int | None) -> None:
        self.dirty[name] = None
        self._changes.append(_OffsetChange(self.version, name, queue))

    def _keep(self, name: Name) -> None:
        """Let those who read a whole copy have what is about to change."""
        for version, reader in list(self._readers.items()):
            if name not in reader.before:
                held = self._by_name.get(name)
                reader.before[name] = None if held is None else held.copy()
                reader.kept_rows += 1 if held is None else len(held.offsets)
                if reader.kept_rows > _MAX_KEPT_ROWS:
                    del self._readers[version]

    def _begin(self, version: DataVersion) -> None:
        if not self._changes:
            self._base = self.version
        self.version = version

    def _trim(self) -> None:
        """Forget the oldest changes, many at once, so that it costs little for each."""
        if len(self._changes) > 2 * self._max_changes:
            cut = len(self._changes) - self._max_changes
            while cut < len(self._changes) and self._changes[cut].version == self._changes[cut - 1].version:
                cut += 1
            self._base = self._changes[cut - 1].version
            del self._changes[:cut]

    def _position(self, known: DataVersion) -> int | None:
        """Index of the first change after that version; None where this table has not come from it, or that is forgotten."""
        changes = self._changes
        if known == self._base:
            return 0
        index = bisect_left(changes, known.counter + 1, key=lambda change: change.version.counter)
        return index if index and changes[index - 1].version == known else None

    def _delta(self, start: int, size: int) -> OffsetPage:
        """Changes from there on, whole versions only, at most about `size` of them but for one that has more."""
        changes = self._changes
        end = min(len(changes), start + size)
        while 0 < end < len(changes) and changes[end].version == changes[end - 1].version:
            end += 1
        removed: dict[Name, None] = {}
        queues: dict[tuple[Name, int], None] = {}
        for change in changes[start:end]:
            if change.queue is None:
                removed[change.name] = None
            else:
                queues[change.name, change.queue] = None
        found = [(name, queue, self._by_name[name]) for name, queue in queues if name in self._by_name]
        rows = tuple(
            [
                ConsumerOffset(*name, queue, of_name.offsets[queue], of_name.resets.get(queue, 0), of_name.incarnation)
                for name, queue, of_name in found
                if queue in of_name.offsets
            ]
        )
        has_more = end < len(changes)
        version = changes[end - 1].version if has_more else self.version
        return OffsetPage(version, rows, is_delta=True, has_more=has_more, removed=tuple(removed), led=self.led)

    def _page(self, token: str, size: int) -> OffsetPage:
        reader, index, queue = self._reader(token)
        rows: list[ConsumerOffset] = []
        while index < len(reader.names) and len(rows) < size:
            name = reader.names[index]
            of_name = reader.before[name] if name in reader.before else self._by_name[name]
            assert of_name is not None, "the name was here in that version"
            left = [row for row in _rows(name, of_name) if row.queue >= queue]
            rows += left[: size - len(rows)]
            taken = bool(not left or rows[-1].key == left[-1].key)
            index, queue = (index + 1, 0) if taken else (index, rows[-1].queue + 1)
        if index == len(reader.names):
            self._readers.pop(reader.version, None)
            return OffsetPage(reader.version, tuple(rows), led=self.led)
        if reader.version not in self._readers:
            while len(self._readers) >= _MAX_READERS:
                del self._readers[next(iter(self._readers))]
            self._readers[reader.version] = reader
        return OffsetPage(reader.version, tuple(rows), f"{reader.version}.{index}.{queue}", led=self.led)

    def _reader(self, token: str) -> tuple[_Copying, int, int]:
        """Who reads, the index of the first name and its first queue of the page that `token` names."""
        if not token:
            return self._readers.get(self.version) or _Copying(self.version, tuple(self._names)), 0, 0
        if not _TOKEN.fullmatch(token):
            raise InvalidField(
                "page_token", "is not a token of this list; take next_page_token of the page before, or none for the first page"
            )
        version, index, queue = token.rsplit(".", 2)
        reader = next((each for each in self._readers.values() if str(each.version) == version), None)
        if reader is None or int(index) >= len(reader.names):
            raise VersionConflict("consumer offsets")
        return reader, int(index), int(queue)


def _rows(name: Name, of_name: NameOffsets) -> Iterator[ConsumerOffset]:
    for queue in sorted(of_name.offsets):
        yield ConsumerOffset(*name, queue, of_name.offsets[queue], of_name.resets.get(queue, 0), of_name.incarnation)
