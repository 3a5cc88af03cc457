"""What a Kubernetes API may do that the others cannot: Leases that people edit, tokens that end, Roles."""

import asyncio
import base64
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dittomq.coordination.settings import CoordinationTable
from dittomq.doors.coordination import Conflict, CoordinationStore, GroupKey, Versioned, WriteUnknown, Written
from dittomq.errors import DittoError, PermissionDenied, Unavailable, UnreadableRecord
from tests.coordination.backends import CLUSTER, door_of
from tests.support.group_records import group_record
from tests.support.kubernetes_api import NAMESPACE, KubernetesApi, kubernetes_api
from tests.support.kubernetes_programs import ISSUER
from tests.support.proxy import Proxy, Way
from tests.support.waiting import PATIENCE_S

RECORD = "dittomq/group-record"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    with kubernetes_api(tmp_path_factory.mktemp("kubernetes")) as made:
        yield made


@pytest.fixture
def proxy(api: KubernetesApi) -> Iterator[Proxy]:
    host, _, port = api.address.rpartition(":")
    with Proxy(lambda: (host, int(port))).running() as made:
        yield made


@contextlib.asynccontextmanager
async def door_to(address: str, settings: CoordinationTable) -> AsyncIterator[CoordinationStore]:
    door = door_of(settings, address)
    try:
        yield door
    finally:
        await door.close()


def play(address: str, settings: CoordinationTable, story: Callable[[CoordinationStore], Awaitable[None]]) -> None:
    """Through a door of its own."""

    async def played() -> None:
        async with door_to(address, settings) as door:
            await story(door)

    asyncio.run(played())


async def created(door: CoordinationStore, broker: str) -> Versioned:
    record = group_record(broker, "first", epoch=7)
    outcome = await door.write(GroupKey(CLUSTER, broker), record, None)
    assert isinstance(outcome, Written), outcome
    return Versioned(record, outcome.version)


async def refused(use: Awaitable[object], kind: type[DittoError]) -> str:
    """Why, within the deadline of three seconds."""
    began = time.monotonic()
    with pytest.raises(kind) as raised:
        await use
    assert time.monotonic() - began < 3.5
    return str(raised.value)


def edit(api: KubernetesApi, broker: str, annotations: dict[str, str]) -> None:
    """As somebody does with kubectl edit."""
    path = api.lease(f"dittomq-{broker}")
    lease = api.asked("GET", path)
    lease["metadata"]["annotations"] = annotations
    api.asked("PUT", path, lease)


# Leases, as people see and edit them.


def test_a_lease_shows_the_master_and_the_epoch_and_belongs_to_nothing(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        first = await created(door, "shown")
        lease = api.asked("GET", api.lease("dittomq-shown"))

        assert lease["spec"]["holderIdentity"] == first.record.master_node
        assert lease["spec"]["leaseTransitions"] == 7
        assert lease["spec"]["renewTime"]
        assert "ownerReferences" not in lease["metadata"]

    play(api.address, api.settings, story)


def test_an_epoch_beyond_32_bits_is_kept(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        key, record = GroupKey(CLUSTER, "old"), group_record("old", "first", epoch=2**40)
        outcome = await door.write(key, record, None)

        assert isinstance(outcome, Written)
        assert await door.read(key) == Versioned(record, outcome.version)

    play(api.address, api.settings, story)


@pytest.mark.parametrize("broker", ["Broker_A", "broker_a", "-a-", "a..b", "UPPER"])
def test_brokers_whose_names_no_lease_may_have_keep_records_too(api: KubernetesApi, broker: str) -> None:
    async def story(door: CoordinationStore) -> None:
        first = await created(door, broker)

        assert await door.read(GroupKey(CLUSTER, broker)) == first

    play(api.address, api.settings, story)


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({}, "the Lease has no annotation dittomq/group-record; look at it, and delete it"),
        ({"dittomq/cluster": CLUSTER}, "the Lease has no annotation dittomq/group-record; look at it, and delete it"),
        ({"dittomq/cluster": CLUSTER, RECORD: "{"}, "it is no group record"),
        ({"dittomq/cluster": CLUSTER, RECORD: '{"version": 99}'}, "upgrade this node"),
        ({"dittomq/cluster": "other", RECORD: "{}"}, "it is of the cluster 'other', not of test, which needs a namespace of its own"),
    ],
)
def test_a_lease_that_was_edited_by_hand_is_refused_until_it_is_deleted(
    api: KubernetesApi, annotations: dict[str, str], sentence: str
) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "edited")
        first = await created(door, "edited")
        edit(api, "edited", annotations)

        assert sentence in await refused(door.read(key), UnreadableRecord)
        assert await door.write(key, first.record.next("second"), first) == Conflict()
        assert await door.delete(key, first) == Conflict()
        api.asked("DELETE", api.lease("dittomq-edited"))
        assert await door.read(key) is None
        found = await created(door, "edited")
        assert await door.delete(key, found) == Written("")

    play(api.address, api.settings, story)


def test_a_lease_that_a_finalizer_keeps_is_not_called_deleted(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "kept")
        await created(door, "kept")
        lease = api.asked("GET", api.lease("dittomq-kept"))
        lease["metadata"]["finalizers"] = ["example.org/backup"]
        api.asked("PUT", api.lease("dittomq-kept"), lease)
        found = await door.read(key)
        assert found is not None

        outcome = await door.delete(key, found)

        assert isinstance(outcome, WriteUnknown)
        assert "a finalizer keeps it" in outcome.problem

    play(api.address, api.settings, story)


# Who may.


def with_token(api: KubernetesApi, token: str) -> CoordinationTable:
    file = api.token_file("presented")
    file.write_text(f"{token}\n")
    return replace(api.settings, token_file=str(file))


def expired_token(api: KubernetesApi) -> str:
    """Of the service account `node`, signed by the cluster, and over since a minute."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).decode().rstrip("=")

    _, claims, _ = api.token_file("node").read_text().split(".")
    content: dict[str, Any] = json.loads(base64.urlsafe_b64decode(claims + "=="))
    now = int(time.time())
    content |= {"iss": ISSUER, "iat": now - 3600, "nbf": now - 3600, "exp": now - 60}
    signed = f"{part(json.dumps({'alg': 'RS256'}).encode())}.{part(json.dumps(content).encode())}"
    command = ["openssl", "dgst", "-sha256", "-sign", str(api.folder / "accounts.key")]
    signature = subprocess.run(command, input=signed.encode(), capture_output=True, check=True, timeout=PATIENCE_S).stdout
    return f"{signed}.{part(signature)}"


@pytest.mark.parametrize("token_of", [lambda _: "wrong", expired_token], ids=["wrong", "expired"])
def test_a_token_that_the_api_refuses_is_named_and_a_new_one_is_taken(api: KubernetesApi, token_of: Callable[[KubernetesApi], str]) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "token")
        record = group_record("token", "first")
        expected = Versioned(record, "uid/1")
        for use in (door.read(key), door.write(key, record, None), door.write(key, record, expected), door.delete(key, expected)):
            assert "check coordination.token_file: its token may have expired" in await refused(use, PermissionDenied)
        assert "check coordination.token_file" in await refused(anext(door.watch(key)), PermissionDenied)

        with_token(api, api.token_file("node").read_text())
        found = await created(door, "token")
        assert await door.delete(key, found) == Written("")

    play(api.address, with_token(api, token_of(api)), story)


def test_a_service_account_without_the_role_learns_which_verbs_it_lacks(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "role")
        record = group_record("role", "first")
        expected = Versioned(record, "uid/1")
        for use in (door.read(key), door.write(key, record, None), door.write(key, record, expected), door.delete(key, expected)):
            assert "needs get, create, update, watch and delete on leases" in await refused(use, PermissionDenied)
        assert "needs get, create, update, watch and delete" in await refused(anext(door.watch(key)), PermissionDenied)

    play(api.address, replace(api.settings, token_file=str(api.token_file("stranger"))), story)


def test_a_namespace_that_is_not_there_is_named(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "nowhere")

        assert await door.read(key) is None
        why = await refused(door.write(key, group_record("nowhere", "first"), None), PermissionDenied)
        assert 'namespaces "elsewhere" not found; create that namespace' in why

    play(api.address, replace(with_token(api, "administrator"), namespace="elsewhere"), story)


def test_a_client_certificate_is_enough(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        assert await door.read(GroupKey(CLUSTER, "certificate")) is None

    shown, key = str(api.folder / "node.pem"), str(api.folder / "node.key")
    play(api.address, replace(api.settings, token_file="", certificate_file=shown, key_file=key), story)


def test_an_api_of_another_authority_is_sent_nothing(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "authority")
        for use in (door.read(key), door.write(key, group_record("authority", "first"), None), anext(door.watch(key))):
            assert "certificate" in await refused(use, Unavailable)

    play(api.address, replace(api.settings, ca_file=str(api.folder / "clients.pem")), story)


def test_an_authority_that_was_exchanged_is_taken_without_a_restart(api: KubernetesApi, tmp_path: Path) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "exchanged")
        await refused(door.read(key), Unavailable)
        authority.write_bytes(right)

        assert await door.read(key) is None

    authority, right = tmp_path / "ca.pem", Path(api.settings.ca_file).read_bytes()
    authority.write_bytes((api.folder / "clients.pem").read_bytes())
    play(api.address, replace(api.settings, ca_file=str(authority)), story)


# Connections.


def test_a_change_whose_answer_is_cut_off_is_sent_once(api: KubernetesApi, proxy: Proxy) -> None:
    async def cut(door: CoordinationStore, change: Awaitable[object]) -> Versioned | None:
        dialled = len(proxy.dialled)
        proxy.cut_after(1, Way.BACK)
        assert isinstance(await change, WriteUnknown)
        assert len(proxy.dialled) == dialled
        return await door.read(GroupKey(CLUSTER, "once"))

    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "once")
        first = await created(door, "once")
        second = await cut(door, door.write(key, first.record.next("second"), first))
        assert second is not None
        assert second.record == first.record.next("second")
        assert await cut(door, door.delete(key, second)) is None

    play(proxy.address, api.settings, story)


def test_a_connection_that_breaks_before_the_request_is_unknown_at_most(api: KubernetesApi, proxy: Proxy) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "broken")
        first = await created(door, "broken")
        api.kill_server()
        outcome: object = None
        with contextlib.suppress(Unavailable):
            outcome = await door.write(key, first.record.next("second"), first)
        assert outcome is None or isinstance(outcome, WriteUnknown)
        assert "does not answer" in await refused(door.write(key, first.record.next("second"), first), Unavailable)

        api.start()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(Unavailable, PermissionDenied):  # it loads its Roles
                    assert await door.read(key) == first
                    break
                await asyncio.sleep(0.05)

    play(proxy.address, api.settings, story)


def test_a_watch_on_a_cut_connection_is_unavailable(api: KubernetesApi, proxy: Proxy) -> None:
    async def story(door: CoordinationStore) -> None:
        hints = door.watch(GroupKey(CLUSTER, "cut"))
        await anext(hints)
        proxy.sever()
        async with asyncio.timeout(PATIENCE_S):
            assert "does not answer" in await refused(anext(hints), Unavailable)

    play(proxy.address, api.settings, story)


def test_a_watch_begins_with_what_is_there(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        first = await created(door, "there")
        hints = door.watch(GroupKey(CLUSTER, "there"))
        await anext(hints)
        edit(api, "there", {RECORD: "edited", "dittomq/cluster": CLUSTER})
        async with asyncio.timeout(PATIENCE_S):
            await anext(hints)
        assert first.version

    play(api.address, api.settings, story)


def test_a_closed_door_opens_no_connection(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        key = GroupKey(CLUSTER, "closed")
        await door.read(key)
        await door.close()
        await door.close()

        assert "this node has closed its connections" in await refused(door.read(key), Unavailable)

    play(api.address, api.settings, story)


def test_the_store_is_called_by_its_namespace_and_address(api: KubernetesApi) -> None:
    async def story(door: CoordinationStore) -> None:
        assert door.name == f"kubernetes leases of {NAMESPACE} at {api.address}"

    play(api.address, api.settings, story)
