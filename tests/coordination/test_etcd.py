"""What etcd may do that the others cannot: members that come and go, users and tokens, certificates."""

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from dittomq.coordination.settings import CoordinationTable
from dittomq.doors.coordination import CoordinationStore, GroupKey, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.errors import ConfigError, DittoError, Unavailable
from dittomq.security.tls import Certificates
from tests.coordination.backends import CLUSTER, ETCD, door_of
from tests.support.certificates import certificate
from tests.support.etcd import Etcd, ServerTls, etcd_members
from tests.support.group_records import group_record
from tests.support.virtual_time import under
from tests.support.waiting import PATIENCE_S

KEY = GroupKey(CLUSTER, "a")
FIRST = group_record("a", "first")


@contextlib.asynccontextmanager
async def door_to(
    *endpoints: str, settings: CoordinationTable = ETCD, shown: Certificates | None = None
) -> AsyncIterator[CoordinationStore]:
    door = door_of(settings, *endpoints, shown=shown)
    try:
        yield door
    finally:
        await door.close()


async def until_answered(door: CoordinationStore) -> Versioned | None:
    """The record, once it is read."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await door.read(KEY)
            except Unavailable:
                await asyncio.sleep(0.05)


async def until_written(door: CoordinationStore, first: Versioned) -> WriteOutcome:
    """The same write, sent until its outcome is known."""
    outcome: WriteOutcome = WriteUnknown("it was not sent")
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(outcome, WriteUnknown):
            with contextlib.suppress(Unavailable):
                outcome = await door.write(KEY, first.record.next("second"), first)
            await asyncio.sleep(0.05)
    return outcome


async def created(door: CoordinationStore) -> Versioned:
    await until_answered(door)
    outcome = await door.write(KEY, FIRST, None)
    assert isinstance(outcome, Written), outcome
    return Versioned(FIRST, outcome.version)


async def problem_of(use: Awaitable[object]) -> str:
    """Why it was refused; empty where it was not."""
    try:
        await use
    except DittoError as problem:
        return str(problem)
    return ""


async def refused(use: Awaitable[object]) -> str:
    """Why, within the deadline of three seconds."""
    began = time.monotonic()
    problem = await problem_of(use)
    assert problem, "it was not refused"
    assert time.monotonic() - began < 3.5
    return problem


def with_three_members(folder: Path, story: Callable[[Etcd, CoordinationStore, Versioned], Awaitable[None]]) -> None:
    """A door to all of them, and a record that is there."""

    async def played(members: Etcd) -> None:
        async with door_to(*members.endpoints) as door:
            await story(members, door, await created(door))

    with etcd_members(folder, 3) as members:
        asyncio.run(played(members))


def test_one_dead_member_of_three_hinders_nothing(tmp_path: Path) -> None:
    async def story(members: Etcd, door: CoordinationStore, first: Versioned) -> None:
        members.kill(0)  # the one in use
        assert await until_answered(door) == first

        outcome = await door.write(KEY, FIRST.next("second"), first)
        assert isinstance(outcome, Written)

    with_three_members(tmp_path / "etcd", story)


def test_two_dead_members_of_three_answer_nothing_and_come_back(tmp_path: Path) -> None:
    async def story(members: Etcd, door: CoordinationStore, first: Versioned) -> None:
        members.kill(0, 1)
        for _ in range(3):
            assert "does not answer" in await refused(door.read(KEY))
        outcome: object = None
        with contextlib.suppress(Unavailable):
            outcome = await door.write(KEY, FIRST.next("second"), first)
        assert outcome is None or isinstance(outcome, WriteUnknown)

        members.start()
        assert await until_answered(door) is not None

    with_three_members(tmp_path / "etcd", story)


def test_a_frozen_member_costs_one_call(tmp_path: Path) -> None:
    async def story(members: Etcd, door: CoordinationStore, first: Versioned) -> None:
        async with door_to(*members.endpoints) as other:
            assert await other.read(KEY) == first
            problem, member, began = "", 0, 0.0
            for member in range(3):  # one of them is in use: the first, unless that was slow
                members.freeze(member)
                began = time.monotonic()
                if problem := await problem_of(other.read(KEY)):
                    break
                members.thaw(member)
            assert time.monotonic() - began < 3.5
            assert "no answer in time" in problem

            assert await until_answered(other) == first
            members.thaw(member)

    with_three_members(tmp_path / "etcd", story)


def test_a_watch_on_a_member_without_the_others_ends(tmp_path: Path) -> None:
    async def story(members: Etcd, door: CoordinationStore, first: Versioned) -> None:
        hints = door.watch(KEY)
        await anext(hints)
        members.kill(1, 2)
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(Unavailable):
                async for _ in hints:
                    pass

    with_three_members(tmp_path / "etcd", story)


@under(asyncio.run)
async def test_an_etcd_restored_from_a_backup_takes_no_write_by_an_old_revision(tmp_path: Path) -> None:
    async def writes(folder: Path, *names: str) -> Versioned:
        with etcd_members(folder, 1) as members:
            async with door_to(*members.endpoints) as door:
                found = await created(door)
                for name in names:
                    record = found.record.next(name)
                    outcome = await door.write(KEY, record, found)
                    assert isinstance(outcome, Written), outcome
                    found = Versioned(record, outcome.version)
                return found

    before = await writes(tmp_path / "etcd", "one", "lost")
    with etcd_members(tmp_path / "other", 1) as members:  # the same revision once more, as after a backup was restored
        async with door_to(*members.endpoints) as door:
            found = await created(door)
            for name in ("one", "another"):
                outcome = await door.write(KEY, found.record.next(name), found)
                assert isinstance(outcome, Written), outcome
                found = Versioned(found.record.next(name), outcome.version)
            assert found.version == before.version
            assert not isinstance(await door.write(KEY, before.record.next("next"), before), Written)


# Users.


def text(number: int, value: str) -> bytes:
    """A text, or a message, as protobuf writes it."""
    return bytes([number << 3 | 2, len(value)]) + value.encode()


async def enable_users(endpoint: str) -> None:
    """root; node, which may use what begins with /dittomq/; stranger, which may nothing. The password of each is its name."""
    permission = b"\x08\x02" + text(2, "/dittomq/") + text(3, "/dittomq0")  # READWRITE
    calls = [("UserAdd", text(1, name) + text(2, name)) for name in ("root", "node", "stranger")]
    calls += [("RoleAdd", text(1, name)) for name in ("root", "node")]
    calls += [("RoleGrantPermission", text(1, "node") + bytes([2 << 3 | 2, len(permission)]) + permission)]
    calls += [("UserGrantRole", text(1, name) + text(2, name)) for name in ("root", "node")]
    async with grpc.aio.insecure_channel(endpoint) as channel:
        for method, request in [*calls, ("AuthEnable", b"")]:
            call: Callable[..., Awaitable[bytes]] = channel.unary_unary(f"/etcdserverpb.Auth/{method}")
            await call(request)


def as_user(folder: Path, name: str, password: str) -> CoordinationTable:
    file = folder / f"{name}.password"
    file.write_text(f"{password}\n")
    return replace(ETCD, username=name, password_file=str(file))


def test_users_with_the_right_password_and_role_may_read_and_write(tmp_path: Path) -> None:
    async def story(members: Etcd) -> None:
        [endpoint] = members.endpoints
        async with door_to(endpoint) as door:
            await until_answered(door)
            await enable_users(endpoint)
            assert "user name is empty" in await refused(door.read(KEY))
            assert "user name is empty" in await refused(door.write(KEY, FIRST, None))
            assert "user name is empty" in await refused(anext(door.watch(KEY)))
        async with door_to(endpoint, settings=as_user(tmp_path, "node", "wrong")) as door:
            assert "check coordination.username, password_file" in await refused(door.read(KEY))
        async with door_to(endpoint, settings=as_user(tmp_path, "stranger", "stranger")) as door:
            assert "permission denied" in await refused(door.read(KEY))
            assert "permission denied" in await refused(door.write(KEY, FIRST, None))
            assert "permission denied" in await refused(anext(door.watch(KEY)))
        async with door_to(endpoint, settings=as_user(tmp_path, "node", "node")) as door:
            first = await created(door)
            await anext(door.watch(KEY))

            members.kill()  # and with it goes the token
            members.start()
            assert await until_answered(door) == first

            members.kill()
            members.start()
            assert isinstance(await until_written(door, first), Written)

    with etcd_members(tmp_path / "etcd", 1) as members:
        asyncio.run(story(members))


# Certificates.


def certificates(folder: Path) -> Path:
    """An authority, and a certificate of it for 127.0.0.1; another authority. Skips the test where there is no openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on PATH to make certificates with")
    folder.mkdir()

    def make(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other"):
        make(*new, "-x509", "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    make(*new, "-subj", "/CN=node", "-keyout", "node.key", "-out", "node.csr")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    make(
        *("x509", "-req", "-in", "node.csr", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
        *("-extfile", "names", "-out", "node.pem"),
    )
    return folder


def test_connections_are_encrypted_and_both_sides_show_certificates(tmp_path: Path) -> None:
    files = certificates(tmp_path / "certificates")
    node, key, ca = files / "node.pem", files / "node.key", files / "ca.pem"
    secured = replace(ETCD, ca_file=str(ca), certificate_file=str(node), key_file=str(key))

    async def story(members: Etcd) -> None:
        async with door_to(*members.endpoints, settings=secured) as door:
            first = await created(door)
        for settings in (ETCD, replace(secured, ca_file=str(files / "other.pem")), replace(ETCD, ca_file=str(ca))):
            async with door_to(*members.endpoints, settings=settings) as door:
                assert "does not answer" in await refused(door.write(KEY, FIRST.next("second"), first))
        async with door_to(*members.endpoints, settings=secured) as door:
            assert await door.read(KEY) == first

    with etcd_members(tmp_path / "etcd", 1, ServerTls(node, key, ca)) as members:
        asyncio.run(story(members))


def test_store_in_plain_text_is_reached_by_a_node_that_has_certificates(tmp_path: Path) -> None:
    async def story(members: Etcd) -> None:
        async with door_to(*members.endpoints, shown=Certificates.of_client(certificate(tmp_path / "tls"))) as door:
            first = await created(door)
            assert await door.read(KEY) == first

    with etcd_members(tmp_path / "etcd", 1) as members:
        asyncio.run(story(members))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ca_file": "missing.pem"}, "coordination.ca_file: .*missing.pem cannot be read: No such file or directory"),
        ({"certificate_file": "node.pem"}, "coordination.key_file: is empty; a client certificate and its key go together"),
        ({"certificate_file": "node.pem", "key_file": "node.key"}, "coordination.ca_file: is empty; a client certificate needs it"),
        ({"username": "node"}, "coordination.password_file: is empty; name the file"),
        ({"username": "node", "password_file": "blank"}, "coordination.password_file: .*blank is empty"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    (tmp_path / "blank").write_text("\n")
    named: dict[str, Any] = {name: str(tmp_path / value) if name.endswith("_file") else value for name, value in changes.items()}

    with pytest.raises(ConfigError, match=sentence):
        door_of(replace(ETCD, **named), "127.0.0.1:2379")
