"""What runs where Spark puts it: one slice digested on all copies, one differing leaf read raw from those whose digests differ."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from dittomq.client.replica_reader import NodeAddress, ReplicaReader
from dittomq.commitlog.records.digest import leaf_digest, root_digest
from dittomq.commitlog.records.record_scanner import View
from dittomq.copies import LEAF_BYTES, MAX_READ_RANGE_BYTES, RangeDigests
from dittomq.doors.transport import GrpcTransport  # noqa: TID251  # the root of an executor's process
from dittomq.errors import DittoError, LimitReached
from dittomq.rpc.channel import Channels
from dittomq.security.certificate_files import NO_CERTIFICATES, CertificateFiles
from dittomq.security.followed_files import following
from dittomq.security.tls import Certificates
from dittomq.security.token_files import TokenFile
from spark.audit.findings import Window, differences, explain, window_of
from spark.audit.model import Leaf, LeafResult, LeafTask, Records, Slice, SliceResult, SliceTask
from spark.audit.semantics import check, missing_tail

DEADLINE_S = 120.0
LONGEST_PAUSE_S = 5.0
T = TypeVar("T")


class RangeSource(Protocol):
    """Reads ranges of copies; ReplicaReader does."""

    async def digests(self, node: NodeAddress, start: int, end: int, salt: int, *, leaves: bool) -> RangeDigests: ...

    def read(self, node: NodeAddress, start: int, end: int) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an audit shows to nodes; every executor has these files. Without certificates it speaks in plain text."""

    tls: CertificateFiles = NO_CERTIFICATES
    token_file: str = ""


@contextlib.contextmanager
def transport_with(shown: Credentials) -> Iterator[GrpcTransport]:
    """A network on which this is shown, as the files hold it until the end. Raises ConfigError."""
    token = TokenFile("--token-file", shown.token_file) if shown.token_file else None
    certificates = Certificates.of_client(shown.tls) if shown.tls else None
    with following(token, certificates):
        yield GrpcTransport(certificates, token)


def run_slices(shown: Credentials, tasks: Iterable[SliceTask]) -> Iterator[SliceResult]:
    """One partition of slices, on an executor."""

    async def run() -> list[SliceResult]:
        with transport_with(shown) as transport:
            async with Channels(transport) as channels:
                source = ReplicaReader(channels, DEADLINE_S)
                return [await compare_slice(source, task) for task in tasks]

    return iter(asyncio.run(run()))


def run_leaves(shown: Credentials, tasks: Iterable[LeafTask]) -> Iterator[LeafResult]:
    """One partition of differing leaves, on an executor."""

    async def run() -> list[LeafResult]:
        with transport_with(shown) as transport:
            async with Channels(transport) as channels:
                source = ReplicaReader(channels, DEADLINE_S)
                return [await explain_leaf(source, task) for task in tasks]

    return iter(asyncio.run(run()))


async def compare_slice(source: RangeSource, task: SliceTask) -> SliceResult:
    """Digest a slice on all copies at once and read it record by record on one. What fails makes the slice unreadable, never different."""
    part = task.slice
    async with asyncio.TaskGroup() as group:
        asked = {copy: group.create_task(_digests(source, copy, task)) for copy in task.copies}
    answers = {copy: asking.result() for copy, asking in asked.items()}
    unreadable = [(copy.name, why) for copy, (_, why) in answers.items() if why]
    digests = {copy: got for copy, (got, _) in answers.items() if got is not None}
    leaves = tuple(_differing(part, list(digests.values())))
    records = None
    if task.reference is not None and task.reference in digests:
        try:
            records = await _new_check(source, task, task.reference, digests[task.reference])
        except DittoError as error:
            unreadable.append((task.reference.name, str(error)))
    digested = tuple(copy.name for copy in digests)
    return SliceResult(part, digested, len(digests) == len(task.copies) > 1, leaves, tuple(unreadable), records)


async def explain_leaf(source: RangeSource, task: LeafTask) -> LeafResult:
    """Read a leaf raw from all its copies and again after a pause; only what differs both times is a finding."""
    around = await _around(source, task)
    if around.differ:
        await asyncio.sleep(task.backoff_s)
        around = await _around(source, task)
    if not around.differ:
        return LeafResult(task.leaf, (), 0, transient=not around.unreadable, unreadable=around.unreadable)
    explained = explain(task.leaf, around.window, around.copies, task.bounds)
    return LeafResult(task.leaf, explained.findings, explained.ignored, transient=False, unreadable=around.unreadable)


class _LeafContext(NamedTuple):
    """A leaf's surroundings on the copies that could be read. `unreadable` is why another one could not."""

    window: Window
    copies: dict[str, bytes]
    differ: bool
    unreadable: str


async def _around(source: RangeSource, task: LeafTask) -> _LeafContext:
    """What explains a leaf best; where that cannot be read, the part of it in the slice of the leaf, of which all these gave digests."""
    leaf, wide = task.leaf, window_of(task.leaf, task.bounds)
    found = await _read_around(source, task, wide)
    if not found.unreadable:
        return found
    return await _read_around(source, task, Window(max(wide.start, leaf.slice.start), min(wide.end, leaf.slice.end)))


async def _read_around(source: RangeSource, task: LeafTask, window: Window) -> _LeafContext:
    copies: dict[str, bytes] = {}
    unreadable = ""
    for copy in task.copies:
        try:
            copies[copy.name] = await _whole(source, copy, window.start, window.end)
        except DittoError as error:
            unreadable = str(error)
    inside = [data[task.leaf.start - window.start : task.leaf.end - window.start] for data in copies.values()]
    return _LeafContext(window, copies, len(inside) > 1 and bool(differences(inside).any()), unreadable)


async def _digests(source: RangeSource, copy: NodeAddress, task: SliceTask) -> tuple[RangeDigests | None, str]:
    try:
        got: RangeDigests = await _patiently()(source.digests, copy, task.slice.start, task.slice.end, task.salt, leaves=True)
    except DittoError as error:
        return None, str(error)
    if got.unreadable:
        return None, got.unreadable
    if len(got.leaves) != -(-(got.end - got.start) // LEAF_BYTES):
        return None, f"{copy.name} sent {len(got.leaves)} digests for {got.end - got.start:,} bytes"
    return got, ""


def _differing(part: Slice, digests: list[RangeDigests]) -> Iterator[Leaf]:
    for index, same in enumerate(zip(*(got.leaves for got in digests), strict=True)):
        if len(set(same)) > 1:
            start = part.start + index * LEAF_BYTES
            yield Leaf(part, start, min(start + LEAF_BYTES, part.end))


async def _new_check(source: RangeSource, task: SliceTask, reference: NodeAddress, known: RangeDigests) -> Records:
    part = task.slice
    data = await _whole(source, reference, part.start, part.end)
    own = [leaf_digest(data[at : at + LEAF_BYTES], task.salt) for at in range(0, len(data), LEAF_BYTES)]
    view = View(data, part.start, part.segment_end)
    while (more := missing_tail(view, part, task.bounds)) is not None:
        view = view._replace(data=view.data + await _whole(source, reference, *more))
    checked = check(reference.name, view, part, task.bounds)
    rehash_equal = tuple(own) == known.leaves and root_digest(own, task.salt) == known.root
    return Records(reference.name, *checked, rehashed=len(data), rehash_equal=rehash_equal)


async def _whole(source: RangeSource, copy: NodeAddress, start: int, end: int) -> bytes:
    assert end - start <= MAX_READ_RANGE_BYTES, "slices and windows are smaller than what a node gives at once"

    async def whole() -> bytes:
        return b"".join([piece async for piece in source.read(copy, start, end)])

    return await _patiently()(whole)


def _patiently() -> AsyncRetrying:
    """A node reads for few tasks at once, lets some wait and refuses the others: those come again, for as long as a call may take."""
    clock = asyncio.get_running_loop()
    until = clock.time() + DEADLINE_S
    return AsyncRetrying(
        retry=retry_if_exception_type(LimitReached),
        wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE_S),
        stop=lambda _: clock.time() >= until,
        sleep=asyncio.sleep,
        reraise=True,
    )
