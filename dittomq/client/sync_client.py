"""The client without await: the same names, for any number of threads. One background thread runs the asynchronous client."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, cast, overload

from dittomq.client.access import ClusterAccess, access_of_context
from dittomq.client.admin import Admin, CreatedTopic, NameserverResult, TopicDescription, UpdatedTopic
from dittomq.client.async_client import AsyncClient
from dittomq.client.bulk import Outcomes
from dittomq.client.consumer import DEFAULT_PREFETCH, ConsumedMessage, Consumer
from dittomq.client.group_member import StartFrom
from dittomq.client.group_result import GroupResult
from dittomq.client.lookups import FoundMessage, MessageLookups
from dittomq.client.producer import OnFull, OnWeak, Producer
from dittomq.client.reader import Page, Reader
from dittomq.client.sync_bridge import OneTaskContext, SyncBridge
from dittomq.client.sync_group_admin import SyncGroupAdmin
from dittomq.consumer.assignment import Strategy
from dittomq.copies import RepairReport
from dittomq.errors import OutcomeHandle
from dittomq.ha_status import HaStatus
from dittomq.message import MAX_BATCH_MESSAGES, Ack, Message, Receipt, StoredMessage
from dittomq.metadata.topics import TopicConfig
from dittomq.reads import DEFAULT_PULL_BYTES, DEFAULT_PULL_MESSAGES, MAX_FOUND_MESSAGES
from dittomq.routes import DEFAULT_NETWORK, Node, Route
from dittomq.security.certificate_files import CertificateFiles
from dittomq.wire.admin import BrokerDescription, FailoverAnswer, HaChange, SwitchoverAnswer
from dittomq.wire.lookups import CancelOutcome

if TYPE_CHECKING:  # an extra, which who asks for no traces need not have
    from opentelemetry.trace import TracerProvider


class Client:
    """A client of one cluster, for use inside `with`, by any number of threads; see AsyncClient."""

    def __init__(
        self,
        nameserver: str | Sequence[str],
        *,
        address_map: Mapping[str, str] | None = None,
        network: str = DEFAULT_NETWORK,
        tls: CertificateFiles | None = None,
        token: str | Callable[[], str] | None = None,
        traces: "TracerProvider | None" = None,
    ) -> None:
        """As AsyncClient's."""
        self._client = AsyncClient(nameserver, address_map=address_map, network=network, tls=tls, token=token, traces=traces)
        self._thread = SyncBridge("dittomq-client")
        self._held = OneTaskContext(self._thread, self._client)

    @classmethod
    def from_context(cls, name: str | None = None) -> Self:
        """A client of the cluster with that name, or of the current one; raises ConfigError when there is none."""
        return cls.of(access_of_context(name))

    @classmethod
    def of(cls, access: ClusterAccess) -> Self:
        """A client of that cluster."""
        return cls(access.nameserver, tls=access.tls, token=access.token())

    def __enter__(self) -> Self:
        self._thread.start()
        self._held.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            self._held.exit(error)
        finally:
            self._thread.stop()

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
    ) -> "SyncProducer":
        """A producer, for use inside `with`, by any number of threads; see ProducerOptions."""
        producer = self._client.producer(
            ack,
            timeout_s=timeout_s,
            retry_s=retry_s,
            on_weak=on_weak,
            on_full=on_full,
            max_waiting_bytes=max_waiting_bytes,
            linger_s=linger_s,
        )
        return SyncProducer(self._thread, producer)

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
    ) -> "SyncReader":
        """A reader of one queue; see ReaderOptions."""
        limits = {"max_messages": max_messages, "max_bytes": max_bytes}
        return SyncReader(self._thread, self._client.reader(topic, queue, broker=broker, node=node, tag=tag, group=group, **limits))

    @property
    def messages(self) -> "SyncMessages":
        """Messages by id and by key; cancels those that wait."""
        return SyncMessages(self._thread, self._client.messages)

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
    ) -> "SyncConsumer":
        """A member of a consumer group, for use inside `with`, by one thread at a time; see ConsumerOptions."""
        consumer = self._client.consumer(
            group, topics, tag=tag, start=start, broadcast=broadcast, strategy=strategy, member=member, prefetch=prefetch
        )
        return SyncConsumer(self._thread, consumer)

    @property
    def admin(self) -> "SyncAdmin":
        """Topics, nodes and roles."""
        return SyncAdmin(self._thread, self._client.admin)

    def route(self, topic: str) -> Route:
        """Where the topic's queues are now; raises as AsyncClient.route does."""
        return self._thread.run(self._client.route(topic))

    def queues(self, topic: str) -> list[tuple[str, int]]:
        """All queues of the topic that can be read, as (broker, queue), in order."""
        return self._thread.run(self._client.queues(topic))


class SyncProducer:
    """Publishes; see Producer."""

    def __init__(self, thread: SyncBridge, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer
        self._held = OneTaskContext(thread, producer)

    def __enter__(self) -> Self:
        self._held.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._held.exit(error)

    def publish(  # a message has these parts
        self,
        topic: str,
        body: bytes | str,
        *,
        keys: Iterable[str] = (),
        order_key: str = "",
        tag: str = "",
        queue: int | None = None,
        properties: Mapping[str, str] | None = None,
        delay_s: float = 0,
        deliver_at: datetime | None = None,
    ) -> Receipt:
        """Publish one message; see Producer. Raises NotStored, AckLevelNotReached or OutcomeUnknown."""
        return self._thread.run(
            self._producer.publish(
                topic,
                body,
                keys=keys,
                order_key=order_key,
                tag=tag,
                queue=queue,
                properties=properties,
                delay_s=delay_s,
                deliver_at=deliver_at,
            )
        )

    def publish_message(self, message: Message) -> Receipt:
        """Publish one message; raises NotStored, AckLevelNotReached or OutcomeUnknown."""
        return self._thread.run(self._producer.publish_message(message))

    @overload
    def publish_many(self, messages: Iterable[Message], *, on_failure: Literal["raise"] = "raise") -> Sequence[Receipt]: ...
    @overload
    def publish_many(self, messages: Iterable[Message], *, on_failure: Literal["return"]) -> Outcomes: ...
    def publish_many(
        self, messages: Iterable[Message], *, on_failure: Literal["raise", "return"] = "raise"
    ) -> Sequence[Receipt] | Outcomes:
        """Publish in order, in bounded memory; see Producer. `messages` is read in the caller's thread."""
        bulk = self._producer.bulk(stop_at_failure=on_failure == "raise")
        source = iter(messages)
        try:
            while piece := list(itertools.islice(source, MAX_BATCH_MESSAGES)):
                if not self._thread.run(bulk.add(piece)):
                    break
            outcomes = self._thread.run(bulk.finish())
        except BaseException:
            self._thread.call_soon(bulk.give_up)
            raise
        if on_failure == "return":
            return outcomes
        outcomes.raise_first_failure()
        return cast("Sequence[Receipt]", outcomes)

    def resolve(self, handle: OutcomeHandle) -> Receipt:
        """What became of a message whose answer was lost; raises NotStored, or OutcomeUnknown as long as nobody can know."""
        return self._thread.run(self._producer.resolve(handle))

    def send_again(self, handle: OutcomeHandle, message: Message) -> Receipt:
        """Send a message of unknown outcome once more under its first identity: stored now, or its first receipt. Never twice."""
        return self._thread.run(self._producer.send_again(handle, message))


class SyncMessage:
    """A message of a consumer group; see ConsumedMessage, whose names it has."""

    def __init__(self, thread: SyncBridge, message: ConsumedMessage) -> None:
        self._thread = thread
        self.consumed = message

    @property
    def topic(self) -> str:
        """The topic that it was published to."""
        return self.consumed.topic

    @property
    def retries(self) -> int:
        """How often it was handed out before and sent back."""
        return self.consumed.retries

    @property
    def body(self) -> bytes:
        """What was published."""
        return self.consumed.body

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys."""
        return self.consumed.keys

    @property
    def tag(self) -> str:
        """Its tag, "" for none."""
        return self.consumed.tag

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""
        return self.consumed.properties

    @property
    def queue(self) -> int:
        """The queue that it was read from."""
        return self.consumed.queue

    @property
    def queue_offset(self) -> int:
        """Its place in that queue."""
        return self.consumed.queue_offset

    def ack(self) -> None:
        """It is handled; see ConsumedMessage."""
        self._thread.run(self.consumed.ack())

    def retry(self, after_s: float | None = None) -> bool:
        """Let the group try it again; see ConsumedMessage."""
        return self._thread.run(self.consumed.retry(after_s))


class SyncConsumer:
    """A member of a consumer group; see Consumer."""

    def __init__(self, thread: SyncBridge, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer
        self._held = OneTaskContext(thread, consumer)

    def __enter__(self) -> Self:
        self._held.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._held.exit(error)

    def __iter__(self) -> Iterator[SyncMessage]:
        while (message := self._thread.run(self._next())) is not None:
            yield SyncMessage(self._thread, message)

    async def _next(self) -> ConsumedMessage | None:
        return await anext(self._consumer, None)


class SyncReader:
    """Reads one queue; see Reader."""

    def __init__(self, thread: SyncBridge, reader: Reader) -> None:
        self._thread = thread
        self._reader = reader

    def pull(
        self,
        offset: int,
        *,
        wait_s: float = 0.0,
        at_least: str | None = None,
        max_staleness_s: float | None = None,
        epoch: int | None = None,
    ) -> Page:
        """A page from `offset` on, empty when nothing came within `wait_s`; see Reader."""
        pulled = self._reader.pull(offset, wait_s=wait_s, at_least=at_least, max_staleness_s=max_staleness_s, epoch=epoch)
        return self._thread.run(pulled)

    def offset_at(self, time: datetime) -> int:
        """The first message that was stored at or after that time; see Reader."""
        return self._thread.run(self._reader.offset_at(time))

    def bounds(self, offset: int = 0) -> tuple[int, int]:
        """The first offset that the queue holds, and one past its last; see Reader."""
        return self._thread.run(self._reader.bounds(offset))

    def messages(self, from_offset: int = 0, *, until_end: bool = False, wait_s: float = 15.0) -> Iterator[StoredMessage]:
        """Every message from an offset on; see Reader."""
        offset, epoch = from_offset, None
        while True:
            page = self.pull(offset, wait_s=0.0 if until_end else wait_s, epoch=epoch)
            yield from page.messages
            if until_end and page.next_offset == offset:
                return
            offset, epoch = page.next_offset, page.epoch


class SyncMessages:
    """Single messages; see MessageLookups."""

    def __init__(self, thread: SyncBridge, messages: MessageLookups) -> None:
        self._thread = thread
        self._messages = messages

    def get(self, message_id: str) -> FoundMessage:
        """The message of a receipt's token, or of RocketMQ's message id."""
        return self._thread.run(self._messages.get(message_id))

    def find(
        self, topic: str, key: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = MAX_FOUND_MESSAGES
    ) -> list[FoundMessage]:
        """Messages of the topic with that key, the newest first; see MessageLookups."""
        return self._thread.run(self._messages.find(topic, key, since=since, until=until, limit=limit))

    def cancel(self, token: str, *, timeout_s: float | None = None) -> CancelOutcome:
        """Let a delayed message never be delivered; see MessageLookups."""
        return self._thread.run(self._messages.cancel(token, timeout_s=timeout_s))


class SyncAdmin(SyncGroupAdmin):
    """Topics, nodes and roles; see Admin."""

    _admin: Admin

    def __init__(self, thread: SyncBridge, admin: Admin) -> None:
        super().__init__(thread, admin)

    def create_topic(self, name: str, queues: int = 8, *, broker: str | None = None) -> list[GroupResult[CreatedTopic]]:
        """Create the topic in every group, or in one."""
        return self._thread.run(self._admin.create_topic(name, queues, broker=broker))

    def update_topic(  # settings
        self,
        name: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: int | None = None,
        broker: str | None = None,
    ) -> list[GroupResult[UpdatedTopic]]:
        """Change what is given of the topic in every group, or in one; see Admin."""
        return self._thread.run(
            self._admin.update_topic(name, read_queues=read_queues, write_queues=write_queues, permission=permission, broker=broker)
        )

    def delete_topic(self, name: str, *, broker: str | None = None) -> list[GroupResult[None]]:
        """Delete the topic in every group, or in one."""
        return self._thread.run(self._admin.delete_topic(name, broker=broker))

    def list_topics(self, *, broker: str | None = None) -> list[GroupResult[tuple[TopicConfig, ...]]]:
        """Topics of every group, by name."""
        return self._thread.run(self._admin.list_topics(broker=broker))

    def describe_topic(self, name: str, *, broker: str | None = None) -> list[GroupResult[TopicDescription]]:
        """The topic in every group that has it; raises TopicNotFound when none has it."""
        return self._thread.run(self._admin.describe_topic(name, broker=broker))

    def list_brokers(self) -> list[Node]:
        """All nodes that a nameserver knows now."""
        return self._thread.run(self._admin.list_brokers())

    def ha_status(self, node: str) -> HaStatus:
        """The view of one node, "broker/id" or "host:port", of its group's replication."""
        return self._thread.run(self._admin.ha_status(node))

    def watch_ha_status(self, node: str, *, period_s: float = 0.5) -> Iterator[HaStatus]:
        """The view of one node whenever it has changed; see Admin."""
        watch = self._admin.watch_ha_status(node, period_s=period_s)

        async def next_status() -> HaStatus | None:
            return await anext(watch, None)

        async def leave() -> None:
            await watch.aclose()

        try:
            while (status := self._thread.run(next_status())) is not None:
                yield status
        finally:
            self._thread.run(leave())

    def get_broker(self, node: str) -> BrokerDescription:
        """What a node, "broker/id" or "host:port", is and how it is configured."""
        return self._thread.run(self._admin.get_broker(node))

    def switchover(self, node: str, *, validate_only: bool = False) -> SwitchoverAnswer:
        """Let a slave take its master's place; see Admin."""
        return self._thread.run(self._admin.switchover(node, validate_only=validate_only))

    def failover(self, node: str, *, allow_data_loss: bool = False, validate_only: bool = False) -> FailoverAnswer:
        """Let a node stand for election; see Admin."""
        return self._thread.run(self._admin.failover(node, allow_data_loss=allow_data_loss, validate_only=validate_only))

    def set_paused(self, broker: str, *, paused: bool, validate_only: bool = False) -> bool:
        """Stop or start automatic failover of a group; see Admin."""
        return self._thread.run(self._admin.set_paused(broker, paused=paused, validate_only=validate_only))

    def ha_history(self, broker: str) -> list[HaChange]:
        """The last changes of a group's record; see Admin."""
        return self._thread.run(self._admin.ha_history(broker))

    def set_writable(self, broker: str, *, writable: bool) -> list[NameserverResult]:
        """Let routes name a group for writing, or not; see Admin."""
        return self._thread.run(self._admin.set_writable(broker, writable=writable))

    def repair(self, node: str, start: int | None = None, end: int | None = None, *, validate_only: bool = False) -> RepairReport:
        """Let the node verify a piece of its log and fetch what is damaged there from other copies; see Admin."""
        return self._thread.run(self._admin.repair(node, start, end, validate_only=validate_only))
