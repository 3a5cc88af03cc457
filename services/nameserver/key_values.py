"""Values that a nameserver keeps for its cluster, by namespace and key: what is read is on the disk."""

import asyncio
import re
from collections.abc import Callable, Generator, Mapping
from typing import Final, NamedTuple, NoReturn

import structlog

from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.workers import Executor
from dittomq.errors import InvalidField, KeyNotFound, LimitReached, Refused, StorageFailure, VersionConflict
from dittomq.metadata.topics import check_topic_name
from dittomq.routes import ORDER_TOPIC_CONFIG, KeyValue, KeyValuePage, order_queues
from services.nameserver.key_values_file import Namespaces, keep

MAX_VALUES: Final = 10_000
MAX_VALUES_BYTES: Final = 4 * 1024 * 1024  # of all together: each change writes all of them
MAX_KEY_CHARACTERS: Final = 255
MAX_VALUE_CHARACTERS: Final = 32_767
MAX_PENDING: Final = 256
DEFAULT_PAGE: Final = 100
MAX_PAGE: Final = 1_000

_NAMESPACE = re.compile(r"[a-zA-Z0-9_.-]{1,127}")
_PAGE_TOKEN = re.compile(r"([0-9]{1,20}):([0-9]{1,20})")
_NOTHING: Final[Mapping[str, str]] = {}

_Change = Callable[[Namespaces], Namespaces]
"""Refuses by raising, and changes nothing by returning what it got."""

log = structlog.get_logger()


class _Kept(NamedTuple):
    """All values at one version."""

    version: int
    namespaces: Namespaces


class KeyValues:
    """MAX_VALUES at most. Changes are made one after the other on `lane`, which has width 1.

    A version counts the changes of this process, so that a page token outlives none of them.
    """

    def __init__(self, found: Namespaces, storage: Storage, lane: Executor) -> None:
        self._kept = _Kept(0, found)
        self._storage = storage
        self._lane = lane
        self._pending = 0  # MAX_PENDING at most; more are refused
        self._failure: StorageFailure | None = None
        self._failed = asyncio.Event()

    @property
    def values(self) -> int:
        """How many are kept."""
        return sum(map(len, self._kept.namespaces.values()))

    def namespace(self, name: str) -> Mapping[str, str]:
        """Its values by key; another object after a change of one of them. Nobody changes what is returned."""
        return self._kept.namespaces.get(name, _NOTHING)

    def get(self, namespace: str, key: str) -> KeyValue:
        """Raises KeyNotFound, InvalidField."""
        _check(namespace, key)
        value = self.namespace(namespace).get(key)
        if value is None:
            raise KeyNotFound(namespace, key)
        return KeyValue(namespace, key, value)

    def page(self, namespace: str, size: int, token: str) -> KeyValuePage:
        """Values in the order of keys; raises InvalidField, and VersionConflict when there was a change since the token."""
        _check_namespace(namespace)
        if not 0 <= size <= MAX_PAGE:
            raise InvalidField("page_size", f"{size:,} is outside 0 to {MAX_PAGE:,}; 0 means {DEFAULT_PAGE}")
        version, namespaces = self._kept
        start = _page_start(token, version)
        end = start + (size or DEFAULT_PAGE)
        values = namespaces.get(namespace, _NOTHING)
        keys = sorted(values)
        page = tuple(KeyValue(namespace, key, values[key]) for key in keys[start:end])
        return KeyValuePage(page, f"{version}:{end}" if end < len(keys) else "")

    async def put(self, asked: KeyValue) -> bool:
        """Keep the value, durably before returning; whether it was another one, or none.

        Raises InvalidField, LimitReached, DiskFull, NotReady: then nothing was changed. StorageFailure: that is not known.
        """
        _check(asked.namespace, asked.key)
        _check_value(asked)
        return await self._change(lambda namespaces: _with(namespaces, asked))

    async def delete(self, namespace: str, key: str) -> bool:
        """Forget the value, durably before returning; whether there was one. Raises as `put` does."""
        _check(namespace, key)
        return await self._change(lambda namespaces: _without(namespaces, namespace, key))

    async def watch_disk(self) -> NoReturn:
        """Wait until a change fails on the disk, and raise its StorageFailure: the process must end."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def _change(self, change: _Change) -> bool:
        """A caller that is cancelled does not stop a change that has begun."""
        if self._pending >= MAX_PENDING:
            raise LimitReached("the queue of changes of a nameserver's values", MAX_PENDING)
        self._pending += 1
        try:
            return await self._lane.run(self._change_steps(change), self._record)
        finally:
            self._pending -= 1

    def _change_steps(self, change: _Change) -> Generator[StorageFailure | None, None, bool]:
        """Yields the failure that the loop must hear of."""
        if self._failure is not None:
            raise self._failure
        version, before = self._kept
        after = change(before)
        if after is before:
            return False
        yield None
        try:
            problem: Refused | None = keep(self._storage, after)
        except StorageFailure as failure:
            self._failure = failure
            yield failure
            raise
        if problem is not None:
            log.error("key_values_not_written", reason=str(problem))
            raise problem
        self._kept = _Kept(version + 1, after)
        return True

    def _record(self, failure: StorageFailure | None) -> None:
        if failure is not None:
            self._failed.set()


def _page_start(token: str, version: int) -> int:
    if not token:
        return 0
    parts = _PAGE_TOKEN.fullmatch(token)
    if parts is None:
        raise InvalidField("page_token", "is not one that this server gave; start with an empty one")
    of_version, start = map(int, parts.groups())
    if of_version != version:
        raise VersionConflict("the list of values")
    return start


def _with(namespaces: Namespaces, asked: KeyValue) -> Namespaces:
    before = namespaces.get(asked.namespace, {})
    if before.get(asked.key) == asked.value:
        return namespaces
    after = {**namespaces, asked.namespace: {**before, asked.key: asked.value}}
    if asked.key not in before and sum(map(len, after.values())) > MAX_VALUES:
        raise LimitReached("the table of a nameserver's values", MAX_VALUES)
    if _bytes_of(after) > MAX_VALUES_BYTES:
        raise LimitReached("the bytes of a nameserver's values", MAX_VALUES_BYTES)
    return after


def _without(namespaces: Namespaces, namespace: str, key: str) -> Namespaces:
    before = namespaces.get(namespace, {})
    if key not in before:
        return namespaces
    left = {each: value for each, value in before.items() if each != key}
    others = {name: values for name, values in namespaces.items() if name != namespace}
    return {**others, namespace: left} if left else others


def _bytes_of(namespaces: Namespaces) -> int:
    return sum(len(key.encode()) + len(value.encode()) for values in namespaces.values() for key, value in values.items())


def _check_namespace(namespace: str) -> None:
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidField("namespace", f'"{namespace[:127]}" is not 1 to 127 letters, digits, dots, dashes or underscores')


def _check(namespace: str, key: str) -> None:
    _check_namespace(namespace)
    if not 1 <= len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidField("key", f"has {len(key):,} characters; a key has 1 to {MAX_KEY_CHARACTERS}")
    if not key.isprintable():
        raise InvalidField("key", "holds a character that cannot be shown; use letters, digits and signs")


def _check_value(asked: KeyValue) -> None:
    if len(asked.value) > MAX_VALUE_CHARACTERS:
        raise InvalidField("value", f"has {len(asked.value):,} characters; the limit is {MAX_VALUE_CHARACTERS:,}")
    if asked.namespace == ORDER_TOPIC_CONFIG:
        check_topic_name(asked.key, "key")
        order_queues(asked.value, "value")
