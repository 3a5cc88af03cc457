"""What becomes of answers that no Kubernetes API gives: proxies, balancers and servers of something else may stand in its place."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.doors.coordination import Conflict, CoordinationStore, GroupKey, Versioned, WriteOutcome, WriteUnknown
from dittomq.errors import DittoError, PermissionDenied, Unavailable
from dittomq.group_record import encode
from tests.coordination.backends import door_of
from tests.support.fake_kubernetes import FakeKubernetes, fake_kubernetes, self_signed
from tests.support.group_records import group_record

KEY = GroupKey("test", "a")
RECORD = group_record("a", "first")
FOUND = Versioned(RECORD, "uid/1")
PAGE = "<html>Not here</html>"
CHANGES: list[Callable[[CoordinationStore], Awaitable[WriteOutcome]]] = [
    lambda door: door.write(KEY, RECORD, None),
    lambda door: door.write(KEY, RECORD, FOUND),
    lambda door: door.delete(KEY, FOUND),
]
Story = Callable[[FakeKubernetes, CoordinationStore], Awaitable[None]]


def status(code: int, reason: str, message: str = "said so", **details: str) -> str:
    """As a Kubernetes API refuses."""
    return json.dumps({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details})


def lease(**metadata: object) -> str:
    """As a Kubernetes API shows one."""
    annotations = {"dittomq/cluster": "test", "dittomq/group-record": encode(RECORD).decode()}
    return json.dumps({"kind": "Lease", "metadata": {"name": "dittomq-a", "annotations": annotations, **metadata}})


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("fake"))


@contextlib.asynccontextmanager
async def opened(certificate: Path) -> AsyncIterator[tuple[FakeKubernetes, CoordinationStore]]:
    async with fake_kubernetes(certificate) as fake:
        door = door_of(fake.settings, fake.address)
        try:
            yield fake, door
        finally:
            await door.close()


def play(certificate: Path, code: int, body: str, story: Story) -> FakeKubernetes:
    async def played() -> FakeKubernetes:
        async with opened(certificate) as (fake, door):
            fake.code, fake.body = code, body
            await story(fake, door)
            return fake

    return asyncio.run(played())


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (404, PAGE),
        (404, status(404, "NotFound", kind="namespaces", name="messaging")),
        (404, status(404, "NotFound", kind="leases", name="dittomq-b")),
        (200, PAGE),
        (200, "{}"),
        (200, lease()),
        (200, lease(uid="", resourceVersion="1")),
        (200, lease(uid="a/b", resourceVersion="1")),
        (200, lease(uid="uid", resourceVersion="")),
        (200, status(200, "Success")),
        (429, status(429, "TooManyRequests")),
        (500, status(500, "InternalError", "etcdserver: request timed out")),
        (503, PAGE),
        (504, status(504, "Timeout")),
    ],
)
def test_only_the_words_of_a_kubernetes_api_say_that_there_is_a_record_or_none(certificate: Path, code: int, body: str) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        with pytest.raises(Unavailable, match="kubernetes lease messaging/dittomq-a does not answer"):
            await door.read(KEY)

    play(certificate, code, body, story)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (200, PAGE),
        (201, "{}"),
        (404, PAGE),
        (409, PAGE),
        (422, PAGE),
        (429, PAGE),
        (500, status(500, "InternalError", "etcdserver: request timed out")),
        (503, PAGE),
        (503, status(503, "ServiceUnavailable")),
        (504, status(504, "Timeout")),
    ],
)
def test_a_change_that_may_have_happened_is_unknown(certificate: Path, code: int, body: str) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        for change in CHANGES:
            assert isinstance(await change(door), WriteUnknown)

    assert play(certificate, code, body, story).asked == ["POST", "PUT", "DELETE"]


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", PermissionDenied),
        (422, "Invalid", PermissionDenied),
        (413, "RequestEntityTooLarge", PermissionDenied),
        (429, "TooManyRequests", Unavailable),
    ],
)
def test_a_change_that_was_refused_as_such_says_why(certificate: Path, code: int, reason: str, kind: type[DittoError]) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        for change in CHANGES:
            with pytest.raises(kind, match="said so"):
                await change(door)

    play(certificate, code, status(code, reason), story)


@pytest.mark.parametrize("body", [status(409, "Conflict"), status(409, "AlreadyExists")])
def test_a_conflict_is_one_whatever_its_reason(certificate: Path, body: str) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        assert [await change(door) for change in CHANGES] == [Conflict()] * 3

    play(certificate, 409, body, story)


def test_a_redirection_is_not_followed(certificate: Path) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        fake.headers = {"Location": f"https://{fake.address}/elsewhere"}
        for change in CHANGES:
            assert isinstance(await change(door), WriteUnknown)
        with pytest.raises(Unavailable, match="points elsewhere"):
            await door.read(KEY)

    assert play(certificate, 307, "", story).asked == ["POST", "PUT", "DELETE", "GET"]


def test_a_version_of_another_store_is_not_there_and_is_not_sent(certificate: Path) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        assert await door.write(KEY, RECORD, Versioned(RECORD, "17")) == Conflict()
        assert await door.delete(KEY, Versioned(RECORD, "17")) == Conflict()

    assert play(certificate, 200, "", story).asked == []


GONE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
CHANGED = json.dumps({"type": "MODIFIED", "object": {}})


@pytest.mark.parametrize(
    ("body", "hints"),
    [("", 1), (f"{CHANGED}\n", 2), (f"{CHANGED}\n{GONE}\n{CHANGED}\n", 2), (f"{CHANGED}\n{PAGE}\n{CHANGED}\n", 2), (f"{CHANGED}\n" * 3, 4)],
)
def test_a_watch_ends_with_the_servers_and_with_what_is_no_change(certificate: Path, body: str, hints: int) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        assert len([hint async for hint in door.watch(KEY)]) == hints

    play(certificate, 200, body, story)


@pytest.mark.parametrize(("code", "body"), [(410, status(410, "Expired")), (429, status(429, "TooManyRequests")), (500, PAGE)])
def test_a_watch_that_does_not_begin_is_unavailable(certificate: Path, code: int, body: str) -> None:
    async def story(fake: FakeKubernetes, door: CoordinationStore) -> None:
        with pytest.raises(Unavailable, match=f"it begins no watch: it answers {code}"):
            await anext(door.watch(KEY))

    play(certificate, code, body, story)


@contextlib.asynccontextmanager
async def in_a_pod(fake: FakeKubernetes) -> AsyncIterator[CoordinationStore]:
    """The door of a node that runs in the pod dittomq-a-1."""
    door = door_of(replace(fake.settings, pod="dittomq-a-1"), fake.address)
    try:
        yield door
    finally:
        await door.close()


def test_a_role_is_a_label_of_the_own_pod_and_changes_nothing_else(certificate: Path) -> None:
    async def shows(fake: FakeKubernetes, door: CoordinationStore) -> None:
        await door.show_role("master")  # it knows of no pod
        assert fake.asked == []

        async with in_a_pod(fake) as in_pod:
            await in_pod.show_role("master")

    fake = play(certificate, 200, json.dumps({"kind": "Pod"}), shows)
    path, body = fake.sent.split(maxsplit=1)
    assert (fake.asked, path) == (["PATCH"], "/api/v1/namespaces/messaging/pods/dittomq-a-1/status")
    assert json.loads(body) == {"metadata": {"labels": {"dittomq/role": "master"}}}


@pytest.mark.parametrize(
    ("code", "body", "kind", "why"),
    [
        (403, status(403, "Forbidden"), PermissionDenied, "patch on pods/status"),
        (404, status(404, "NotFound", kind="pods", name="dittomq-a-1"), Unavailable, "it answers 404"),
        (502, PAGE, Unavailable, "it answers 502"),
    ],
)
def test_a_role_that_cannot_be_shown_says_why(certificate: Path, code: int, body: str, kind: type[DittoError], *, why: str) -> None:
    async def is_refused(fake: FakeKubernetes, _: CoordinationStore) -> None:
        async with in_a_pod(fake) as in_pod:
            with pytest.raises(kind, match=why):
                await in_pod.show_role("slave")

    play(certificate, code, body, is_refused)
