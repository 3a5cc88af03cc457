"""One client: routes, channels, and what is made from them."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dittomq.client.access import ClusterAccess, access_of_context
from dittomq.client.admin import Admin
from dittomq.client.consumer import DEFAULT_PREFETCH, Consumer, ConsumerOptions
from dittomq.client.group_member import StartFrom
from dittomq.client.ha_watch import ClusterWatch
from dittomq.client.lookups import MessageLookups
from dittomq.client.producer import OnFull, OnWeak, Producer, ProducerOptions
from dittomq.client.reader import Reader, ReaderOptions
from dittomq.client.routing import ClientContext, Routing, backoff_s
from dittomq.client.transactions import TransactionChecks
from dittomq.client.validation import is_address
from dittomq.consumer.assignment import Strategy
from dittomq.doors.chance import os_chance  # noqa: TID251  # an application that hands in no doors gets the real ones
from dittomq.doors.clock import Clock, OsClock  # noqa: TID251  # the same
from dittomq.doors.traces import Traces
from dittomq.doors.transport import GrpcTransport, Transport  # noqa: TID251  # the same
from dittomq.errors import InvalidField, NotReady
from dittomq.message import Ack
from dittomq.naming.route_cache import RouteCache
from dittomq.reads import DEFAULT_PULL_BYTES, DEFAULT_PULL_MESSAGES
from dittomq.routes import DEFAULT_NETWORK, Route
from dittomq.rpc.channel import Channels
from dittomq.security.certificate_files import CertificateFiles
from dittomq.security.followed_files import FollowedFiles
from dittomq.security.tls import Certificates
from dittomq.security.token_files import source_of_token

if TYPE_CHECKING:  # an extra, which who asks for no traces need not have
    from opentelemetry.trace import TracerProvider

_FIRST_WORDS_S = 10.0


class AsyncClient:
    """A client of one cluster, for use inside `async with`, on one event loop."""

    def __init__(  # three doors, for simulation, beside three settings
        self,
        nameserver: str | Sequence[str],
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        address_map: Mapping[str, str] | None = None,
        network: str = DEFAULT_NETWORK,
        tls: CertificateFiles | None = None,
        token: str | Callable[[], str] | None = None,
        traces: "TracerProvider | None" = None,
    ) -> None:
        """`nameserver`: "host:port", several separated by commas or in a list. `address_map`: advertised address → the one to use.

        `tls`: files of certificates, which are read now and when they change; without them in plain text. Raises ConfigError for theirs.
        `token`: says who this client is, or gives what says so at each call; never sent in plain text but to this machine itself.
        `traces`: gets a span for each message, or call for many, that is published, and for each that a consumer hands out.
        """
        clock = clock or OsClock()
        certificates = Certificates.of_client(tls) if tls else None
        self._followed = [each for each in (certificates, token) if isinstance(each, FollowedFiles)]
        self._channels = Channels(transport or GrpcTransport(certificates, source_of_token(token)))
        cache = RouteCache(nameservers_of(nameserver), self._channels, clock, network)
        routing, spans = Routing(cache, clock, address_map or {}), Traces(traces) if traces is not None else None
        self._around = ClientContext(self._channels, routing, clock, chance or os_chance(), spans)

    @classmethod
    def from_context(cls, name: str | None = None) -> Self:
        """A client of the cluster with that name, or of the current one; raises ConfigError when there is none."""
        return cls.of(access_of_context(name))

    @classmethod
    def of(cls, access: ClusterAccess) -> Self:
        """A client of that cluster."""
        return cls(access.nameserver, tls=access.tls, token=access.token())

    async def __aenter__(self) -> Self:
        for files in self._followed:
            files.follow()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self._channels.close()
        for files in self._followed:
            files.close()

    def producer(  # settings with defaults
        self,
        ack: Ack | None = None,
        *,
        timeout_s: float = 3.0,
        retry_s: float = 10.0,
        on_weak: OnWeak = "raise",
        on_full: OnFull = "wait",
        max_waiting_bytes: int = 32 * 1024 * 1024,
        linger_s: float = 0.0,
    ) -> Producer:
        """A producer, for use inside `async with`; see ProducerOptions."""
        options = ProducerOptions(
            ack=ack,
            timeout_s=timeout_s,
            retry_s=retry_s,
            on_weak=on_weak,
            on_full=on_full,
            max_waiting_bytes=max_waiting_bytes,
            linger_s=linger_s,
        )
        return Producer(self._around, options)

    def reader(  # settings with defaults
        self,
        topic: str,
        queue: int,
        *,
        broker: str | None = None,
        node: str | None = None,
        tag: str = "",
        max_messages: int = DEFAULT_PULL_MESSAGES,
        max_bytes: int = DEFAULT_PULL_BYTES,
        group: str = "",
    ) -> Reader:
        """A reader of one queue; see ReaderOptions."""
        options = ReaderOptions(broker=broker, node=node, tag=tag, max_messages=max_messages, max_bytes=max_bytes, group=group)
        return Reader(topic, queue, self._around, options)

    def consumer(  # settings with defaults
        self,
        group: str,
        topics: Sequence[str],
        *,
        tag: str = "",
        start: StartFrom = "earliest",
        broadcast: bool = False,
        strategy: Strategy = Strategy.AVERAGE,
        member: str = "",
        prefetch: int = DEFAULT_PREFETCH,
    ) -> Consumer:
        """A member of a consumer group, for use inside `async with`; see ConsumerOptions. Without a name it gets a random one."""
        options = ConsumerOptions(
            group,
            tuple(topics),
            member or f"{self._around.chance.getrandbits(64):016x}",
            tag=tag,
            start=start,
            broadcast=broadcast,
            strategy=strategy,
            prefetch=prefetch,
        )
        return Consumer(self._around, options)

    @property
    def admin(self) -> Admin:
        """Topics, nodes and roles."""
        return Admin(self._around)

    @property
    def messages(self) -> MessageLookups:
        """Messages by id and by key; cancels those that wait."""
        return MessageLookups(self._around)

    @property
    def transactions(self) -> TransactionChecks:
        """Questions about transactions that nobody has ended, and their ends."""
        return TransactionChecks(self._around)

    def watch_cluster(self, *, period_s: float = 0.5) -> ClusterWatch:
        """What every node says of replication, at most once in `period_s`; see ClusterWatch."""
        return ClusterWatch(self.admin, self._around, period_s=period_s)

    async def route(self, topic: str) -> Route:
        """Where the topic's queues are now; raises TopicNotFound, Unavailable, or NotReady when nameservers cannot know it within 10 s.

        That much they get where they were just started: brokers register with them within that time, if it was not configured to be longer.
        """
        around, failures = self._around, 0
        until = around.clock.monotonic() + _FIRST_WORDS_S
        while True:
            try:
                return await around.routing.route(topic, fresh=True)
            except NotReady:
                if around.clock.monotonic() >= until:
                    raise
            await asyncio.sleep(backoff_s(failures, around.chance))
            failures += 1

    async def queues(self, topic: str) -> list[tuple[str, int]]:
        """All queues of the topic that can be read, as (broker, queue), in order."""
        route = await self.route(topic)
        return sorted((group.broker, queue) for group in route.queues for queue in range(group.read_queues))


def nameservers_of(text: str | Sequence[str]) -> list[str]:
    """Addresses of nameservers; raises InvalidField for none, or for one that is not "host:port"."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    addresses = [part.strip() for part in parts if part.strip()]
    for address in addresses:
        if not is_address(address):
            raise InvalidField("nameserver", f'"{address}" is not host:port, for instance localhost:9876')
    if not addresses:
        raise InvalidField("nameserver", "is empty; give host:port, for instance localhost:9876")
    return addresses
