"""Group records in etcd: one key per group, changed by a transaction on its revision and its value."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from dittomq._pb.etcd.v3 import etcd_pb2 as pb
from dittomq._pb.etcd.v3.etcd_pb2_grpc import AuthStub, KVStub, WatchStub
from dittomq.coordination.endpoints import EndpointConnection, Endpoints
from dittomq.coordination.of_group import of_group
from dittomq.doors.coordination import Conflict, GroupKey, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.errors import PermissionDenied, Unavailable, UnreadableRecord
from dittomq.group_record import GroupRecord, decode, encode
from dittomq.rpc.channel import breaking
from dittomq.security.secret_files import SecretFile

_ONLY_WITH_LEADER: Final = ("hasleader", "true")  # a member that is cut off from the others refuses, instead of waiting
_REFUSALS: Final = frozenset(
    {
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)

_REVISION: Final = re.compile(r"[1-9][0-9]{0,17}")

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]


class EtcdCoordination:
    """A CoordinationStore of several members: while most of them are there, it answers."""

    def __init__(self, endpoints: Endpoints, prefix: str, username: str = "", password: SecretFile | None = None) -> None:
        self._endpoints = endpoints
        self._prefix = prefix.rstrip("/")
        self._username = username
        self._password = password
        self._token = ""  # "" until it is needed, and after etcd has refused it
        self._values: dict[GroupKey, tuple[Versioned, bytes]] = {}  # what was seen last, and its bytes: others may encode otherwise

    @property
    def name(self) -> str:
        return self._endpoints.name

    async def read(self, key: GroupKey) -> Versioned | None:
        line = await self._endpoints.connected()
        try:
            response = await self._range(line, key)
        except _TokenRefusedError:
            try:
                response = await self._range(line, key)
            except _TokenRefusedError as again:
                raise PermissionDenied(str(again)) from again
        return of_group(self._found(response, key, self._endpoints.where(line)), key, self._endpoints.where(line))

    async def write(self, key: GroupKey, record: GroupRecord, expected: Versioned | None) -> WriteOutcome:
        value = encode(record)
        change = pb.RequestOp(request_put=pb.PutRequest(key=self._key(key), value=value))
        outcome = await self._change(key, change, expected)
        if isinstance(outcome, Written):
            self._values[key] = Versioned(record, outcome.version), value
        return outcome

    async def delete(self, key: GroupKey, expected: Versioned) -> WriteOutcome:
        change = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self._key(key)))
        outcome = await self._change(key, change, expected)
        return Written("") if isinstance(outcome, Written) else outcome

    async def watch(self, key: GroupKey) -> AsyncIterator[None]:
        line = await self._endpoints.connected()
        where = self._endpoints.where(line)
        metadata = await self._signed_in(line)
        request = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=self._key(key)))
        stream: Any = line.stub(WatchStub).Watch(metadata=metadata)
        try:
            await _within(line, where, stream.write(request))  # the stream stays open on this side: its end would end the watch
            response = await _within(line, where, stream.read())
            while response is not grpc.aio.EOF:
                self._check_watch(response, where)
                if response.created or response.events:
                    yield
                with breaking(where):
                    response = await stream.read()
        except Unavailable:
            await self._endpoints.failed(line.address)
            raise
        finally:
            stream.cancel()

    async def show_role(self, role: str) -> None:
        return

    async def close(self) -> None:
        await self._endpoints.close()

    def _key(self, key: GroupKey) -> bytes:
        return f"{self._prefix}/{key}".encode()

    async def _range(self, line: EndpointConnection, key: GroupKey) -> pb.RangeResponse:
        metadata = await self._signed_in(line)
        return await self._call(line, line.stub(KVStub).Range, pb.RangeRequest(key=self._key(key)), metadata)

    def _found(self, response: pb.RangeResponse, key: GroupKey, where: str) -> Versioned | None:
        if not response.kvs:
            return None
        kv = response.kvs[0]
        if len(response.kvs) > 1 or kv.key != self._key(key) or kv.mod_revision <= 0:
            raise UnreadableRecord(where, f"it was asked for {self._key(key).decode()}, and answered with another key")
        found = Versioned(decode(kv.value, where), str(kv.mod_revision))
        self._values[key] = found, kv.value
        return found

    async def _change(self, key: GroupKey, change: pb.RequestOp, expected: Versioned | None) -> WriteOutcome:
        request = pb.TxnRequest(compare=self._comparisons(key, expected), success=[change])
        line = await self._endpoints.connected()
        metadata = await self._signed_in(line)
        try:
            response = await self._call(line, line.stub(KVStub).Txn, request, metadata)
        except (Unavailable, _TokenRefusedError) as error:
            return WriteUnknown(str(error))
        if not response.succeeded:
            return Conflict()
        if response.header.revision <= 0:
            return WriteUnknown(f"{self._endpoints.where(line)} wrote the record, and its answer names no revision")
        return Written(str(response.header.revision))

    def _comparisons(self, key: GroupKey, expected: Versioned | None) -> list[pb.Compare]:
        """The value too: an etcd that was restored from a backup counts its revisions once more."""
        name = self._key(key)
        if expected is None:
            return [pb.Compare(target=pb.Compare.CREATE, key=name, create_revision=0)]
        seen, value = self._values.get(key, (None, b""))
        if seen != expected:
            value = encode(expected.record)
        revision = int(expected.version) if _REVISION.fullmatch(expected.version) else 0  # 0 and a value: never so
        return [
            pb.Compare(target=pb.Compare.MOD, key=name, mod_revision=revision),
            pb.Compare(target=pb.Compare.VALUE, key=name, value=value),
        ]

    def _check_watch(self, response: pb.WatchResponse, where: str) -> None:
        if response.compact_revision > 0:
            raise Unavailable(where, f"changes before revision {response.compact_revision} are compacted away")
        if response.canceled:
            self._token = ""  # it may be why
            raise Unavailable(where, f"it has ended the watch: {response.cancel_reason or 'no reason given'}")

    async def _signed_in(self, line: EndpointConnection) -> Metadata:
        """The headers of a call. Raises PermissionDenied, Unavailable, ConfigError; what follows was not sent then."""
        if self._password is not None and not self._token:
            password = (await self._password.read()).decode(errors="replace").strip()
            request = pb.AuthenticateRequest(name=self._username, password=password)
            response = await self._call(line, line.stub(AuthStub).Authenticate, request, ())
            self._token = response.token
        return (_ONLY_WITH_LEADER, *((("token", self._token),) if self._token else ()))

    async def _call(self, line: EndpointConnection, method: Callable[..., Awaitable[T]], request: object, metadata: Metadata) -> T:
        """One call on an open connection. Raises PermissionDenied, after which nothing was done, _TokenRefusedError, and Unavailable."""
        where = self._endpoints.where(line)
        try:
            with breaking(where):
                try:
                    return await method(request, timeout=line.left_s, metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    self._check_refusal(error, where, metadata)
                    raise
        except Unavailable:
            await self._endpoints.failed(line.address)
            raise

    def _check_refusal(self, error: grpc.aio.AioRpcError, where: str, metadata: Metadata) -> None:
        if error.code() not in _REFUSALS:
            return
        has_token = any(name == "token" for name, _ in metadata)
        if has_token and error.code() is not grpc.StatusCode.PERMISSION_DENIED:
            self._token = ""
            raise _TokenRefusedError(
                f"{where} refuses the token of {self._username}: {error.details()}; this node signs in again"
            ) from error
        remedy = "check coordination.username, password_file and the role of that user"
        raise PermissionDenied(f"{where} refuses: {error.details()}; {remedy}") from error


async def _within(line: EndpointConnection, where: str, step: Awaitable[Any]) -> Any:
    """A step at the beginning of a stream. Raises Unavailable, also at the line's deadline."""
    try:
        with breaking(where):
            async with asyncio.timeout(line.left_s):
                return await step
    except TimeoutError:
        raise Unavailable(where, "it begins no watch") from None


class _TokenRefusedError(Exception):
    """Tokens end, after five minutes without a call for instance; the next call signs in again."""
