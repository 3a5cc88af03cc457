"""A broker node makes itself known to every nameserver, each on its own, and hears from them who leads its group."""

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
from dittomq.errors import ConfigError, DittoError, NodeIdTaken, OutOfReach, SessionEnded, WrongCluster
from dittomq.naming.desk import CALL_DEADLINE_S, MAX_RETRY_S, Desk, NameserverAnswer
from dittomq.naming.limits import registrable
from dittomq.offsets import Epoch
from dittomq.routes import NO_OPENING, Beat, BeatAnswer, Claim, Membership, NodeState, Opening, Registration
from dittomq.rpc.channel import Channels, call
from dittomq.wire import naming as wire

_EAGER_PERIOD_S: Final = 1.0  # while this node recovers, or no master is known
_FIRST_RETRY_S: Final = 0.1
_GOODBYE_S: Final = 2.0
_SHOWN_TOPICS: Final = 10

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NameserverNews:
    """What all nameservers say together.

    `answers`: those whose last call succeeded, in the configured order. `newest`: the newest epoch of the group that any of them ever
    told of, also one that refused us. `superseded`: another replica took this node's id by a higher epoch; this node must stop, and
    registers no more. `refusal`: why a nameserver refuses us now, or may forget us, empty for none. `taken`: some refuse us because
    another replica holds this node's id, and none takes us in; `shared`: some do, and that one was heard since, while others take us in,
    and refuse that one perhaps; `displaced`: it is another node, since a change of roles. `may_hold`: a nameserver that does not answer
    now may hold the id for this node still, or its holder may be about to leave it. `rivals`: why those lead for whom it is refused, and
    who were heard since, or who are refused for it. `complete`: each has answered, refused or been silent once.
    """

    answers: tuple[NameserverAnswer, ...]
    superseded: bool
    refusal: str
    taken: bool
    shared: bool
    displaced: bool
    newest: Opening
    may_hold: bool
    rivals: tuple[Claim, ...]
    complete: bool

    @property
    def settled(self) -> bool:
        """Whether one answers that has heard every living broker."""
        return any(answer.settled for answer in self.answers)

    @property
    def master(self) -> NameserverAnswer | None:
        """The answer that names the group's master; of several, whose master told of the highest epoch. None when no master is known.

        Other nodes may have told a nameserver of a newer epoch than the master that it names, dead perhaps, has ever heard of. One of an
        older version says only what it knows itself.
        """
        naming = [answer for answer in self.answers if answer.master]
        return max(naming, key=lambda answer: (answer.told_epoch, answer.newest.epoch), default=None)


class Registrar:
    """Registers at start and on change, heartbeats in between, says goodbye at a clean stop.

    `describe` says what to register; `heard` is called on the loop after each answer, refusal or silence.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # two callbacks of its owner; the rest are doors
        self,
        nameservers: Sequence[str],
        describe: Callable[[], Registration],
        heard: Callable[[NameserverNews], None],
        channels: Channels,
        clock: Clock,
        chance: random.Random,
        *,
        patient: bool = False,
        is_start: bool = True,
    ) -> None:
        """`patient`: who holds this node's id is about to leave it. `is_start`: this is the first life of its process."""
        self._patient = patient
        self._is_start = is_start
        self._desks = [Desk(nameserver, asyncio.Event()) for nameserver in nameservers]
        self._describe = describe
        self._heard = heard
        self._channels = channels
        self._clock = clock
        self._chance = chance
        self._superseded = False
        self._newest = NO_OPENING
        self._was_registered = False
        self._left_out: tuple[str, ...] = ()  # why topics are not registered, as logged last
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        """Until `goodbye`, or until this node is superseded.

        Raises ConfigError (in a group) when all nameservers serve another cluster, and at a start when three registration periods exceed
        the expiry of a nameserver that takes this node in while it was registered nowhere yet, or before each has answered, refused or
        been silent once; NodeIdTaken, as long as it was registered nowhere, when a replica that lives, and is no other node, holds its id.
        """
        async with asyncio.TaskGroup() as tasks:
            for desk in self._desks:
                attending = tasks.create_task(self._attend(desk), name=f"registrar {desk.nameserver}")
                attending.add_done_callback(lambda _, desk=desk: desk.left.set())  # type: ignore[misc]

    def changed(self) -> None:
        """Register again now: topics, state, epoch or role differ."""
        for desk in self._desks:
            desk.stale = True
            desk.wake.set()

    def ask(self) -> None:
        """Hear now who leads, and not only at the next heartbeat."""
        for desk in self._desks:
            desk.wake.set()

    async def tell(self, within_s: float) -> int:
        """Report this node as it is now; how many nameservers hear it within the time and keep its epoch. Call it while `run` runs."""
        heard = 0

        async def one(desk: Desk) -> None:
            nonlocal heard
            told = await self._told(desk)
            heard += told

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as tasks:
                for desk in self._desks:
                    tasks.create_task(one(desk))
        return heard

    async def _told(self, desk: Desk) -> bool:
        number = desk.described + 1  # one that is under way may be of before
        desk.wake.set()
        while desk.reported < number:
            desk.round_over.clear()
            await desk.round_over.wait()
        return desk.answer is not None and desk.kept

    async def goodbye(self) -> None:
        """End `run` and remove this node from the nameservers that answer within 2 s. Call it once `run` was started."""
        self._leaving.set()
        for desk in self._desks:
            desk.wake.set()
        with contextlib.suppress(TimeoutError):  # a nameserver that does not hear us forgets us at its expiry
            async with asyncio.timeout(_GOODBYE_S), asyncio.TaskGroup() as tasks:
                for desk in self._desks:
                    tasks.create_task(self._unregister(desk), name=f"goodbye {desk.nameserver}")

    async def _attend(self, desk: Desk) -> None:
        failures = 0
        while not self._leaving.is_set() and not self._superseded:
            desk.wake.clear()
            registration = self._describe()
            desk.described += 1
            silence: OutOfReach | None = None
            try:
                await self._report(desk, registration)
                desk.held_s = self._clock.monotonic() + desk.remembered_s
                desk.reported = desk.described
                failures = 0
                pause_s = self._period_s(desk, registration)
            except SessionEnded as ended:
                desk.session = ""
                pause_s = 0.0
                if ended.superseded:
                    self._learn(_opening_in(ended))
                    self._stop_all()
            except ConfigError:
                raise
            except DittoError as error:
                self._stop_if_foreign(desk, error)
                self._stop_if_taken(desk, registration, error)
                desk.answer = None
                desk.stale = True
                silence = error if isinstance(error, OutOfReach) else None
                desk.note(registration.node, None if silence else error, "registration_refused")
                desk.reported = desk.described
                failures += 1
                pause_s = self._retry_s(failures, registration)
            desk.note_silence(registration.node, silence, self._clock.monotonic())
            desk.round_over.set()
            self._tell()
            await _wait(desk.wake, pause_s)

    async def _report(self, desk: Desk, registration: Registration) -> None:
        if desk.session and not desk.stale and desk.topics == registration.topics:
            answer = await self._heartbeat(desk, registration)
            if not answer.register_again:
                return
        desk.stale, desk.topics = False, registration.topics  # before the call: a change during it counts
        await self._register(desk, registration)

    async def _register(self, desk: Desk, registration: Registration) -> None:
        stub = self._channels.stub(NameServerServiceStub, desk.nameserver)
        request = wire.registration_request(self._within_limits(registration))
        response: pb.RegisterBrokerResponse = await call(
            stub.RegisterBroker, request, who=f"nameserver {desk.nameserver}", deadline_s=CALL_DEADLINE_S
        )
        membership = wire.membership(response)
        too_long = _period_problem(registration, membership, desk.nameserver)
        is_early = not self._was_registered or (desk.answered_s == 0.0 and not self._is_complete)
        if too_long is not None and self._is_start and is_early:
            raise too_long
        self._was_registered = True
        desk.session, desk.answered_s = membership.session_id, self._clock.monotonic()
        desk.taken_s, desk.rival = None, None
        desk.kept = membership.epoch_kept
        desk.note(registration.node, too_long, "registration_period_too_long")
        self._learn(membership.newest)
        desk.answer = NameserverAnswer(
            desk.nameserver,
            membership.master,
            membership.master_replication,
            membership.master_epoch,
            membership.newest,
            membership.uptime_ms,
            membership.broker_expiry_ms,
        )

    def _within_limits(self, registration: Registration) -> Registration:
        """Without the topics that a nameserver refuses: it would refuse the others, and the node, with them."""
        topics, left_out = registrable(registration.topics)
        if left_out not in ((), self._left_out):
            log.warning("topics_not_registered", node=registration.node, count=len(left_out), reasons=left_out[:_SHOWN_TOPICS])
        self._left_out = left_out
        return replace(registration, topics=topics)

    async def _heartbeat(self, desk: Desk, registration: Registration) -> BeatAnswer:
        stub = self._channels.stub(NameServerServiceStub, desk.nameserver)
        request = wire.beat_request(
            Beat(desk.session, registration.data_version, registration.epoch, registration.state, registration.opener_id)
        )
        response: pb.HeartbeatResponse = await call(
            stub.Heartbeat, request, who=f"nameserver {desk.nameserver}", deadline_s=CALL_DEADLINE_S
        )
        answer = wire.beat_answer(response)
        desk.rival, desk.kept = answer.rival, answer.epoch_kept
        if desk.answer is not None:
            told = replace(desk.answer, master=answer.master, master_replication=answer.master_replication)
            desk.answer = replace(told, master_epoch=answer.master_epoch)
        return answer

    async def _unregister(self, desk: Desk) -> None:
        await desk.left.wait()
        if not desk.session:
            return
        stub = self._channels.stub(NameServerServiceStub, desk.nameserver)
        request = pb.UnregisterBrokerRequest(session_id=desk.session)
        desk.session = ""
        with contextlib.suppress(DittoError):  # it forgets us at its expiry
            await call(stub.UnregisterBroker, request, who=f"nameserver {desk.nameserver}", deadline_s=_GOODBYE_S)

    def _stop_if_taken(self, desk: Desk, registration: Registration, error: DittoError) -> None:
        """Remember the holder of this node's id as a rival, or raise at a start, once it has spoken after it was found in the way.

        A holder that died is silent from then on, but for what was on its way, and makes room at its expiry. Another node has the id since
        a change of roles that this one's disk does not know: nobody's mistake.
        """
        if not isinstance(error, NodeIdTaken):
            desk.taken_s, desk.rival, desk.displaced = None, None, False
            return
        rival = Claim(_opening_in(error), Epoch(error.granted_epoch))
        self._learn(rival.opening)
        now = self._clock.monotonic()
        desk.taken_s, desk.displaced = now if desk.taken_s is None else desk.taken_s, error.is_displaced
        spoke_s = now - error.silent_ms / 1_000
        stays = spoke_s > desk.taken_s + 3 * registration.registration_period_ms / 1_000  # though it was told of this node by then
        desk.held_s = 0.0 if stays else now + MAX_RETRY_S + CALL_DEADLINE_S
        lives = spoke_s > desk.taken_s + CALL_DEADLINE_S
        desk.rival = rival if lives else None
        if lives and not (self._patient or self._was_registered or desk.displaced):
            raise error

    def _learn(self, opening: Opening) -> None:
        if opening.epoch > self._newest.epoch or (opening.epoch == self._newest.epoch and self._newest.opener_id is None):
            self._newest = opening

    def _stop_all(self) -> None:
        self._superseded = True
        for desk in self._desks:
            desk.wake.set()

    def _stop_if_foreign(self, desk: Desk, error: DittoError) -> None:
        """A node that every nameserver places in another cluster is misconfigured; once it was registered anywhere, a nameserver is."""
        desk.foreign = isinstance(error, WrongCluster) and desk.answered_s == 0.0
        if isinstance(error, WrongCluster) and all(each.foreign for each in self._desks):
            problem = f'is "{error.asked}", and nameserver {desk.nameserver} serves cluster "{error.actual}"; change it or node.nameservers'
            raise ConfigError("node.cluster", problem) from error

    def _tell(self) -> None:
        now = self._clock.monotonic()
        answers = tuple(
            replace(desk.answer, uptime_ms=desk.answer.uptime_ms + int((now - desk.answered_s) * 1_000))
            for desk in self._desks
            if desk.answer is not None
        )
        refusal = next((desk.refusal for desk in self._desks if desk.refusal), "")
        taken = not answers and any(desk.taken_s is not None for desk in self._desks)
        shared = bool(answers) and any(desk.taken_s is not None and desk.rival is not None for desk in self._desks)
        displaced = (taken or shared) and any(desk.displaced for desk in self._desks)
        may_hold = any(now < desk.held_s for desk in self._desks)
        rivals = tuple(desk.rival for desk in self._desks if desk.rival is not None)
        told = answers, self._superseded, refusal, taken, shared, displaced, self._newest, may_hold, rivals, self._is_complete
        self._heard(NameserverNews(*told))

    @property
    def _is_complete(self) -> bool:
        return all(desk.reported for desk in self._desks)

    @staticmethod
    def _period_s(desk: Desk, registration: Registration) -> float:
        """Three fit in the nameserver's expiry, also where it has become shorter than it was at this node's start."""
        period_s = registration.registration_period_ms / 1_000
        if desk.answer is not None:
            period_s = min(period_s, max(desk.answer.broker_expiry_ms / 3_000, _EAGER_PERIOD_S))
        master_known = desk.answer is not None and bool(desk.answer.master)
        if registration.state is NodeState.SERVING and master_known:
            return period_s
        return min(period_s, _EAGER_PERIOD_S)

    def _retry_s(self, failures: int, registration: Registration) -> float:
        """Never longer than a period: a nameserver that comes back hears of this node within one."""
        most_s = min(MAX_RETRY_S, registration.registration_period_ms / 1_000)
        ceiling = min(most_s, _FIRST_RETRY_S * 2.0 ** min(failures, 10))
        return ceiling * (0.5 + self._chance.random() / 2)


def _period_problem(registration: Registration, membership: Membership, nameserver: str) -> ConfigError | None:
    period_ms = registration.registration_period_ms
    if 3 * period_ms <= membership.broker_expiry_ms:
        return None
    limit_ms = membership.broker_expiry_ms // 3
    return ConfigError(
        "registration_period_ms",
        f"{period_ms:,} is too long for nameserver {nameserver}, which forgets a broker after {membership.broker_expiry_ms:,} ms; "
        f"set it to {limit_ms:,} or less",
    )


def _opening_in(error: NodeIdTaken | SessionEnded) -> Opening:
    return Opening(Epoch(error.group_epoch), error.opener_id)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
