"""Group records in Kubernetes: one Lease per group, which holds the record in an annotation; and a pod's label for its role.

Needs the extra `kubernetes`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import aiohttp
import msgspec
from kubernetes_asyncio import client as kubernetes
from msgspec import Meta

from dittomq.coordination.of_group import of_group
from dittomq.coordination.settings import CoordinationTable
from dittomq.doors.clock import Clock
from dittomq.doors.coordination import Conflict, GroupKey, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.doors.workers import Executor
from dittomq.errors import ConfigError, PermissionDenied, Unavailable, UnreadableRecord
from dittomq.group_record import GroupRecord, decode, encode
from dittomq.security.secret_files import SecretFile, read_secret

RECORD_ANNOTATION: Final = "dittomq/group-record"
CLUSTER_ANNOTATION: Final = "dittomq/cluster"
ROLE_LABEL: Final = "dittomq/role"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_DEADLINE_S: Final = 3.0  # of each call, with the connection that it needs
_CONNECT_S: Final = 1.5
_WATCH_S: Final = 60  # then the API server ends a watch, so that a dead connection is found
_SILENCE_S: Final = _WATCH_S + 5.0
_MAX_EVENT_BYTES: Final = 2 * 1024 * 1024  # above etcd's limit for one object
_HINTS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_DONE: Final = frozenset({200, 201})
_REFUSALS: Final = frozenset({400, 405, 413, 415, 422})  # nothing was done
_MAX_TRANSITIONS: Final = 2**31 - 1  # the field has 32 bits
_PLAIN_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_REMEDIES: Final = {
    401: "check coordination.token_file: its token may have expired, or belong to another cluster",
    403: "the Role of this node's service account needs get, create, update, watch and delete on leases of coordination.k8s.io, "
    "and, where coordination.pod names one, patch on pods/status",
}

_AS_IT_COMES: Final[dict[str, Any]] = {  # answers are decoded here
    "_preload_content": False,
    "_request_timeout": aiohttp.ClientTimeout(connect=_CONNECT_S, sock_read=_SILENCE_S),
}

D = TypeVar("D")
Leases = kubernetes.CoordinationV1Api
Pods = kubernetes.CoreV1Api
Request = Callable[[kubernetes.ApiClient], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class KubernetesAccess:
    """Where the API is, and what this node shows it. `token` None: the client certificate is all. `pod`: this node's own, if not empty."""

    address: str
    namespace: str
    ca: SecretFile
    token: SecretFile | None
    certificate: SecretFile | None
    key: SecretFile | None
    pod: str

    @property
    def tls(self) -> tuple[SecretFile, ...]:
        """What a connection is made with."""
        return tuple(each for each in (self.ca, self.certificate, self.key) if each is not None)


def kubernetes_access(
    settings: CoordinationTable,
    endpoints: Sequence[str],
    *,
    environment: Mapping[str, str],
    lane: Executor,
    account: Path = SERVICE_ACCOUNT,
) -> KubernetesAccess:
    """As configured; what is not configured is that of the pod whose `environment` and service `account` these are.

    Reads every file once. Blocks: for a start. Raises ConfigError.
    """
    if len(endpoints) > 1:
        raise ConfigError("coordination.endpoints", "names several, and each cluster has one address for its Kubernetes API; name that")
    if bool(settings.certificate_file) != bool(settings.key_file):
        missing = "coordination.key_file" if settings.certificate_file else "coordination.certificate_file"
        raise ConfigError(missing, "is empty; a client certificate and its key go together")

    def secret(name: str, path: str) -> SecretFile:
        return SecretFile(f"coordination.{name}", path, lane)

    has_certificate = bool(settings.certificate_file)
    access = KubernetesAccess(
        address=endpoints[0] if endpoints else _address_in_cluster(environment),
        namespace=settings.namespace or read_secret("coordination.namespace", str(account / "namespace")).decode().strip(),
        ca=secret("ca_file", settings.ca_file or str(account / "ca.crt")),
        token=secret("token_file", settings.token_file or str(account / "token")) if settings.token_file or not has_certificate else None,
        certificate=secret("certificate_file", settings.certificate_file) if has_certificate else None,
        key=secret("key_file", settings.key_file) if has_certificate else None,
        pod=settings.pod,
    )
    for file in (*access.tls, *filter(None, [access.token])):
        read_secret(file.setting, file.path)
    return access


def lease_name(broker: str) -> str:
    """The name of a group's Lease: the broker's where the API takes it, otherwise its bytes in hex. No two brokers share one."""
    return f"dittomq-{broker}" if _PLAIN_NAME.fullmatch(broker) else f"dittomq.{broker.encode().hex()}"


class KubernetesCoordination:
    """A CoordinationStore: each call is one request to the API server, which asks its etcd."""

    def __init__(self, access: KubernetesAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._client: kubernetes.ApiClient | None = None  # None: not connected yet, or closed
        self._tls: tuple[bytes, ...] = ()  # what its files held when `_client` was made
        self._is_closed = False

    @property
    def name(self) -> str:
        return f"kubernetes leases of {self._access.namespace} at {self._access.address}"

    async def read(self, key: GroupKey) -> Versioned | None:
        name, namespace, where = lease_name(key.broker), self._access.namespace, self._where(key)
        try:  # without a resourceVersion the API server reads from etcd, not from its cache
            answer = await self._call(where, lambda client: Leases(client).read_namespaced_lease(name, namespace, **_AS_IT_COMES))
        except _UnansweredError as error:
            raise Unavailable(where, str(error)) from error
        if answer.is_not_found_of(name):
            return None
        if answer.lease is None:
            raise Unavailable(where, answer.problem)
        return of_group(_versioned(answer.lease, key, where), key, where)

    async def write(self, key: GroupKey, record: GroupRecord, expected: Versioned | None) -> WriteOutcome:
        name, namespace, where = lease_name(key.broker), self._access.namespace, self._where(key)
        if expected is None:
            lease = self._lease(key, record)
            answer = await self._change(
                where,
                name,
                lambda client: Leases(client).create_namespaced_lease(namespace, lease, field_manager="dittomq", **_AS_IT_COMES),
            )
        elif "/" in expected.version:
            lease = self._lease(key, record, *expected.version.split("/", 1))
            answer = await self._change(
                where,
                name,
                lambda client: Leases(client).replace_namespaced_lease(name, namespace, lease, field_manager="dittomq", **_AS_IT_COMES),
            )
        else:
            return Conflict()  # another store's version: it is not there
        if not isinstance(answer, _ApiAnswer):
            return answer
        if answer.lease is None:
            return WriteUnknown(f"{where} answers with something else than the Lease that was written")
        return Written(answer.lease.metadata.version)

    async def delete(self, key: GroupKey, expected: Versioned) -> WriteOutcome:
        name, namespace, where = lease_name(key.broker), self._access.namespace, self._where(key)
        uid, _, revision = expected.version.partition("/")
        if not revision:
            return Conflict()
        body = kubernetes.V1DeleteOptions(preconditions=kubernetes.V1Preconditions(uid=uid, resource_version=revision))
        answer = await self._change(
            where, name, lambda client: Leases(client).delete_namespaced_lease(name, namespace, body=body, **_AS_IT_COMES)
        )
        if not isinstance(answer, _ApiAnswer):
            return answer
        if answer.status is None:  # the Lease itself
            return WriteUnknown(f"{where} is not deleted yet; a finalizer keeps it")
        return Written("")

    async def watch(self, key: GroupKey) -> AsyncIterator[None]:
        only, namespace, where = f"metadata.name={lease_name(key.broker)}", self._access.namespace, self._where(key)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                response = await self._send(
                    lambda client: Leases(client).list_namespaced_lease(
                        namespace, field_selector=only, watch=True, timeout_seconds=_WATCH_S, **_AS_IT_COMES
                    )
                )
                if response.status != 200:
                    answer = _permitted(_ApiAnswer(response.status, await response.read()), where)
                    raise Unavailable(where, f"it begins no watch: {answer.problem}")
        except (_UnansweredError, aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(where, f"it begins no watch: {_problem(error)}") from error
        try:
            yield
            async for line in response.content:
                event = _decoded(line, _Event)
                if event is None or event.type not in _HINTS:
                    return
                yield
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Unavailable(where, f"the watch has ended: {_problem(error)}") from error
        finally:
            response.close()

    async def show_role(self, role: str) -> None:
        pod, namespace = self._access.pod, self._access.namespace
        if not pod:
            return
        where, label = f"kubernetes pod {namespace}/{pod}", {"metadata": {"labels": {ROLE_LABEL: role}}}
        try:  # of the status: the right to that is none to change what a pod runs
            answer = await self._call(where, lambda client: Pods(client).patch_namespaced_pod_status(pod, namespace, label, **_AS_IT_COMES))
        except _UnansweredError as error:
            raise Unavailable(where, str(error)) from error
        if answer.code not in _DONE:
            raise Unavailable(where, answer.problem)

    async def close(self) -> None:
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _where(self, key: GroupKey) -> str:
        return f"kubernetes lease {self._access.namespace}/{lease_name(key.broker)}"

    def _lease(self, key: GroupKey, record: GroupRecord, uid: str | None = None, revision: str | None = None) -> kubernetes.V1Lease:
        """The whole Lease. With `uid` the API server replaces only that one; with a revision alone it makes one that is gone once more."""
        seconds, ms = divmod(self._clock.wall_ms(), 1000)
        return kubernetes.V1Lease(
            api_version="coordination.k8s.io/v1",
            kind="Lease",
            metadata=kubernetes.V1ObjectMeta(
                name=lease_name(key.broker),
                namespace=self._access.namespace,
                annotations={RECORD_ANNOTATION: encode(record).decode(), CLUSTER_ANNOTATION: key.cluster},
                uid=uid,
                resource_version=revision,
            ),
            spec=kubernetes.V1LeaseSpec(  # for show
                holder_identity=record.master_node,
                lease_transitions=min(record.epoch, _MAX_TRANSITIONS),
                # The API demands a fraction, and kubernetes-asyncio leaves it out where it is 0.
                renew_time=datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1000 + 1),
            ),
        )

    async def _change(self, where: str, name: str, request: Request) -> "_ApiAnswer | WriteOutcome":
        """The answer where it was done. Raises Unavailable and PermissionDenied where it was not, and never will be."""
        try:
            answer = await self._call(where, request)
        except _UnansweredError as error:
            return WriteUnknown(f"{where} does not answer: {error}")
        if answer.code in _DONE:
            return answer
        if answer.status is None:  # not the API server's words: something between may have sent it on
            return WriteUnknown(f"{where} does not answer: {answer.problem}")
        if answer.code == 409 or answer.is_not_found_of(name):
            return Conflict()
        if answer.code == 429:
            raise Unavailable(where, answer.problem)
        if answer.code == 404:
            raise PermissionDenied(f"{where} cannot be written: {answer.problem}; create that namespace, or correct coordination.namespace")
        if answer.code in _REFUSALS:
            raise PermissionDenied(f"{where} cannot be written: {answer.problem}")
        return WriteUnknown(f"{where} does not answer: {answer.problem}")

    async def _call(self, where: str, request: Request) -> "_ApiAnswer":
        """Raises PermissionDenied and Unavailable, after which nothing was done; _UnansweredError; ConfigError."""
        try:
            async with asyncio.timeout(_DEADLINE_S):
                response = await self._send(request)
                return _permitted(_ApiAnswer(response.status, await response.read()), where)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _UnansweredError(_problem(error)) from error

    async def _send(self, request: Request) -> aiohttp.ClientResponse:
        """Raises Unavailable where nothing was sent, and else what aiohttp raises; ConfigError."""
        client = await self._connected()
        try:
            return cast("aiohttp.ClientResponse", await request(client))
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise Unavailable(self.name, _problem(error)) from error

    async def _connected(self) -> kubernetes.ApiClient:
        """A client with what the files hold now. Raises Unavailable, ConfigError."""
        access = self._access
        token = None if access.token is None else await access.token.read()
        tls = tuple([await file.read() for file in access.tls])
        if self._is_closed:
            raise Unavailable(self.name, "this node has closed its connections to it")
        if self._client is None or tls != self._tls:
            before, self._client, self._tls = self._client, _client_for(access, self.name), tls
            if before is not None:
                await before.close()
        if token is not None:
            self._client.configuration.api_key["BearerToken"] = f"Bearer {token.decode().strip()}"
        return self._client


class _UnansweredError(Exception):
    """A request may have been obeyed."""


class _ObjectMetadata(msgspec.Struct, rename="camel"):
    name: str
    uid: Annotated[str, Meta(min_length=1, pattern="^[^/]+$")]
    resource_version: Annotated[str, Meta(min_length=1)]
    annotations: dict[str, str] = {}

    @property
    def version(self) -> str:
        """Never used twice: a Lease that is made again has another uid."""
        return f"{self.uid}/{self.resource_version}"


class _Lease(msgspec.Struct):
    kind: Literal["Lease"]
    metadata: _ObjectMetadata


class _Details(msgspec.Struct):
    name: str = ""
    kind: str = ""


class _Status(msgspec.Struct):
    kind: Literal["Status"]
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class _Event(msgspec.Struct):
    type: str


class _ApiAnswer:
    """An answer, decoded: the API server's words are a Lease or a Status."""

    def __init__(self, code: int, body: bytes) -> None:
        self.code = code
        self.lease = _decoded(body, _Lease) if code in _DONE else None
        self.status = _decoded(body, _Status)

    @property
    def problem(self) -> str:
        """What the API server says is wrong."""
        said = (self.status.message or self.status.reason) if self.status is not None else "and nothing that a Kubernetes API would say"
        return f"it answers {self.code}: {said}"

    def is_not_found_of(self, lease: str) -> bool:
        """Whether there is no such Lease. A 404 of anything else, of a proxy for instance, says nothing of the kind."""
        details = None if self.status is None else self.status.details
        return self.code == 404 and details is not None and (details.kind, details.name) == ("leases", lease)


def _client_for(access: KubernetesAccess, name: str) -> kubernetes.ApiClient:
    """A client that sends each request once, and only there. Raises Unavailable when the TLS files are no such files."""
    configuration = kubernetes.Configuration(host=f"https://{access.address}", ssl_ca_cert=access.ca.path)
    if access.certificate is not None and access.key is not None:
        configuration.cert_file, configuration.key_file = access.certificate.path, access.key.path
    try:
        client = kubernetes.ApiClient(configuration)
    except OSError as error:
        raise Unavailable(name, f"the files for TLS cannot be used: {error}") from error
    made = client.rest_client.pool_manager
    connector = made.connector
    made.detach()
    client.rest_client.pool_manager = aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), middlewares=(_send_once,), read_bufsize=_MAX_EVENT_BYTES
    )
    return client


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Without this, aiohttp sends a PUT or DELETE once more when its connection breaks, and follows redirections."""
    try:
        response = await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _UnansweredError(_problem(error)) from error
    if 300 <= response.status < 400:
        response.close()
        raise _UnansweredError(f"it answers {response.status}, and points elsewhere")
    return response


def _versioned(lease: _Lease, key: GroupKey, where: str) -> Versioned:
    annotations = lease.metadata.annotations
    if RECORD_ANNOTATION not in annotations:
        raise UnreadableRecord(where, f"the Lease has no annotation {RECORD_ANNOTATION}")
    if (cluster := annotations.get(CLUSTER_ANNOTATION, "")) != key.cluster:
        raise UnreadableRecord(where, f"it is of the cluster {cluster!r}, not of {key.cluster}, which needs a namespace of its own")
    return Versioned(decode(annotations[RECORD_ANNOTATION].encode(), where), lease.metadata.version)


def _permitted(answer: _ApiAnswer, where: str) -> _ApiAnswer:
    if answer.code in _REMEDIES:
        raise PermissionDenied(f"{where} refuses: {answer.problem}; {_REMEDIES[answer.code]}")
    return answer


def _decoded(body: bytes, kind: type[D]) -> D | None:
    """None where it is nothing of that kind."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _problem(error: Exception) -> str:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return "it took too long to connect"
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is refused: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect: {error.os_error}"
        case TimeoutError():
            return "no answer in time"
        case _:
            return str(error) or "the connection broke"


def _address_in_cluster(environment: Mapping[str, str]) -> str:
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError("coordination.endpoints", "is empty, and this node runs in no pod; name the address of the Kubernetes API")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
