"""A broker node makes itself known to every nameserver, each on its own, and hears from them where its group's master is."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1.naming_pb2_grpc import NameServerServiceStub
from dittomq.doors.clock import Clock
from dittomq.errors import ConfigError, DittoError, DuplicateBrokerId, SessionExpired, Unavailable, WrongCluster
from dittomq.naming.nameserver_session import CALL_DEADLINE_S, NameserverAnswer, NameserverSession
from dittomq.naming.validation import RegistrableTopics
from dittomq.routes import (
    BrokerState,
    ChangedTopics,
    GroupMaster,
    HeartbeatRequest,
    HeartbeatResult,
    Registration,
    RegistrationResult,
)
from dittomq.rpc.channel import Channels, call
from dittomq.wire import naming as wire

_EAGER_PERIOD_S: Final = 1.0  # while this node recovers, or no master is known
_FIRST_RETRY_S: Final = 0.1
_MAX_RETRY_S: Final = 5.0
_GOODBYE_S: Final = 2.0
_SHOWN_TOPICS: Final = 10

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RouteUpdate:
    """What all nameservers say together.

    `answers`: those whose last call succeeded, in the configured order. `refusal`: why a nameserver refuses this node now, or may forget
    it; empty for none. `taken`: some refuse it because another replica holds its id, and none takes it in.
    """

    answers: tuple[NameserverAnswer, ...]
    refusal: str
    taken: bool

    @property
    def master(self) -> GroupMaster | None:
        """The group's master; of several that nameservers name, the one of the highest epoch. None when none is known."""
        named = [answer.master for answer in self.answers if answer.master is not None]
        return max(named, key=lambda master: master.epoch, default=None)

    @property
    def order_topics(self) -> set[str]:
        """Topics that any nameserver has an order configuration of."""
        return {topic for answer in self.answers for topic in answer.order_topics}


class Registrar:
    """Registers at start and on change, heartbeats in between, says goodbye at a clean stop.

    `describe` says what to register; `heard` is called on the loop after each answer, refusal or silence.
    """

    def __init__(  # noqa: PLR0917  # two callbacks of its owner; the rest are doors
        self,
        nameservers: Sequence[str],
        describe: Callable[[], Registration],
        on_update: Callable[[RouteUpdate], None],
        channels: Channels,
        clock: Clock,
        chance: random.Random,
        *,
        is_start: bool = True,
    ) -> None:
        """`is_start`: this is the first service of its process."""
        self._is_start = is_start
        self._desks = [NameserverSession(nameserver, asyncio.Event()) for nameserver in nameservers]
        self._describe = describe
        self._on_update = on_update
        self._channels = channels
        self._clock = clock
        self._chance = chance
        self._registrable = RegistrableTopics()
        self._left_out: tuple[str, ...] = ()  # why topics are not registered, as logged last
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        """Until `goodbye`.

        Raises ConfigError (in a group) when all nameservers serve another cluster. At a start raises, as long as the node was registered
        nowhere: ConfigError when three registration periods exceed the expiry of a nameserver, also of one that takes longer to answer
        than the others; DuplicateBrokerId when another living replica is configured with this node's id.
        """
        async with asyncio.TaskGroup() as tasks:
            for desk in self._desks:
                attending = tasks.create_task(self._attend(desk), name=f"registrar {desk.nameserver}")
                attending.add_done_callback(lambda _, desk=desk: desk.left.set())  # type: ignore[misc]

    def changed(self) -> None:
        """What is to be registered differs: report it now, and not only at the next heartbeat."""
        for desk in self._desks:
            desk.wake.set()

    async def goodbye(self) -> None:
        """End `run` and remove this node from the nameservers that answer within 2 s. Call it once `run` was started."""
        self._leaving.set()
        for desk in self._desks:
            desk.wake.set()
        with contextlib.suppress(TimeoutError):  # a nameserver that does not hear us forgets us at its expiry
            async with asyncio.timeout(_GOODBYE_S), asyncio.TaskGroup() as tasks:
                for desk in self._desks:
                    tasks.create_task(self._unregister(desk), name=f"goodbye {desk.nameserver}")

    async def _attend(self, desk: NameserverSession) -> None:
        failures = 0
        while not self._leaving.is_set():
            desk.wake.clear()
            registration = self._within_limits(self._describe())
            silence: Unavailable | None = None
            try:
                await self._report(desk, registration)
                desk.was_asked = True
                failures = 0
                pause_s = self._period_s(desk, registration)
            except SessionExpired:
                desk.session = ""
                pause_s = 0.0
            except ConfigError:
                raise
            except DittoError as error:
                self._stop_if_foreign(desk, error)
                self._stop_if_taken(desk, registration, error)
                desk.was_asked = True
                desk.answer = desk.registered = None
                silence = error if isinstance(error, Unavailable) else None
                if desk.is_new_problem(None if silence else error):
                    log.warning("registration_refused", node=registration.node, nameserver=desk.nameserver, reason=str(error))
                failures += 1
                pause_s = self._retry_s(failures, registration)
            desk.record_unreachable(registration.node, silence, self._clock.monotonic())
            self._notify()
            await _wait(desk.wake, pause_s)

    async def _report(self, desk: NameserverSession, registration: Registration) -> None:
        changes = desk.changes(registration)
        if changes is not None:
            answer = await self._heartbeat(desk, registration, changes)
            if not answer.must_reregister:
                desk.registered = registration
                return
        await self._register(desk, registration)

    async def _register(self, desk: NameserverSession, registration: Registration) -> None:
        stub = self._channels.stub(NameServerServiceStub, desk.nameserver)
        request = wire.registration_request(registration)
        response: pb.RegisterBrokerResponse = await call(
            stub.RegisterBroker, request, who=f"nameserver {desk.nameserver}", deadline_s=CALL_DEADLINE_S
        )
        membership = wire.membership(response)
        too_long = _period_problem(registration, membership, desk.nameserver)
        is_late = desk.was_registered or all(each.was_asked for each in self._desks)
        if too_long is not None and self._is_start and not (self._was_registered and is_late):
            raise too_long
        desk.session, desk.registered, desk.was_registered = membership.session_id, registration, True
        desk.taken_since_s = None
        if desk.is_new_problem(too_long):
            log.warning("registration_period_too_long", node=registration.node, nameserver=desk.nameserver, reason=str(too_long))
        desk.answer = NameserverAnswer(desk.nameserver, membership.master, membership.broker_expiry_ms, membership.order_topics)

    @property
    def _was_registered(self) -> bool:
        return any(desk.was_registered for desk in self._desks)

    def _within_limits(self, registration: Registration) -> Registration:
        """Without the topics that a nameserver refuses: it would refuse the others, and the node, with them."""
        topics, left_out = self._registrable.of(registration.topics)
        if left_out not in ((), self._left_out):
            log.warning("topics_not_registered", node=registration.node, count=len(left_out), reasons=left_out[:_SHOWN_TOPICS])
        self._left_out = left_out
        return replace(registration, topics=topics)

    async def _heartbeat(self, desk: NameserverSession, registration: Registration, changes: ChangedTopics) -> HeartbeatResult:
        stub = self._channels.stub(NameServerServiceStub, desk.nameserver)
        beat = HeartbeatRequest(desk.session, registration.data_version, registration.epoch, registration.state, changes)
        request = wire.beat_request(beat)
        response: pb.HeartbeatResponse = await call(
            stub.Heartbeat, request, who=f"nameserver {desk.nameserver}", deadline_s=CALL_DEADLINE_S
        )
        answer = wire.beat_answer(response)
        if desk.answer is not None:
            desk.answer = replace(desk.answer, master=answer.master)
        return answer

    async def _unregister(self, desk: NameserverSession) -> None:
        await desk.left.wait()
        if not desk.session:
            return
        stub = self._channels.stub(NameServerServiceStub, desk.nameserver)
        request = pb.UnregisterBrokerRequest(session_id=desk.session)
        desk.session = ""
        with contextlib.suppress(DittoError):  # it forgets us at its expiry
            await call(stub.UnregisterBroker, request, who=f"nameserver {desk.nameserver}", deadline_s=_GOODBYE_S)

    def _stop_if_taken(self, desk: NameserverSession, registration: Registration, error: DittoError) -> None:
        """At a start raise DuplicateBrokerId once the holder of this node's id has spoken after it was found in the way.

        A holder that died is silent from then on, but for what was on its way, and makes room at its expiry. Another node has the id since
        a change of roles, and leaves it when it has read the group record.
        """
        if not isinstance(error, DuplicateBrokerId):
            desk.taken_since_s = None
            return
        now = self._clock.monotonic()
        desk.taken_since_s = now if desk.taken_since_s is None else desk.taken_since_s
        lives = now - error.silent_ms / 1_000 > desk.taken_since_s + CALL_DEADLINE_S
        if lives and self._is_start and not self._was_registered and not error.is_displaced:
            raise error

    def _stop_if_foreign(self, desk: NameserverSession, error: DittoError) -> None:
        """A node that every nameserver places in another cluster is misconfigured; once it was registered anywhere, a nameserver is."""
        desk.is_foreign = isinstance(error, WrongCluster) and not desk.was_registered
        if isinstance(error, WrongCluster) and all(each.is_foreign for each in self._desks):
            problem = f'is "{error.asked}", and nameserver {desk.nameserver} serves cluster "{error.actual}"; change it or node.nameservers'
            raise ConfigError("node.cluster", problem) from error

    def _notify(self) -> None:
        answers = tuple(desk.answer for desk in self._desks if desk.answer is not None)
        refusal = next((desk.refusal for desk in self._desks if desk.refusal), "")
        taken = not answers and any(desk.taken_since_s is not None for desk in self._desks)
        self._on_update(RouteUpdate(answers, refusal, taken))

    @staticmethod
    def _period_s(desk: NameserverSession, registration: Registration) -> float:
        """Three fit in the nameserver's expiry, also where it has become shorter than it was at this node's start."""
        period_s = registration.registration_period_ms / 1_000
        if desk.answer is not None:
            period_s = min(period_s, max(desk.answer.broker_expiry_ms / 3_000, _EAGER_PERIOD_S))
        is_master_known = desk.answer is not None and desk.answer.master is not None
        if registration.state is BrokerState.SERVING and is_master_known:
            return period_s
        return min(period_s, _EAGER_PERIOD_S)

    def _retry_s(self, failures: int, registration: Registration) -> float:
        """Never longer than a period: a nameserver that comes back hears of this node within one."""
        most_s = min(_MAX_RETRY_S, registration.registration_period_ms / 1_000)
        ceiling = min(most_s, _FIRST_RETRY_S * 2.0 ** min(failures, 10))
        return ceiling * (0.5 + self._chance.random() / 2)


def _period_problem(registration: Registration, membership: RegistrationResult, nameserver: str) -> ConfigError | None:
    period_ms = registration.registration_period_ms
    if 3 * period_ms <= membership.broker_expiry_ms:
        return None
    limit_ms = membership.broker_expiry_ms // 3
    return ConfigError(
        "registration_period_ms",
        f"{period_ms:,} is too long for nameserver {nameserver}, which forgets a broker after {membership.broker_expiry_ms:,} ms; "
        f"set it to {limit_ms:,} or less",
    )


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
