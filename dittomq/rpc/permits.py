"""What the caller of a call under way may do: looked at with each request, and again whenever the rules have changed."""

from collections.abc import Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import grpc.aio

from dittomq.errors import PermissionDenied
from dittomq.rpc.places import Places, group_of_topic
from dittomq.security.access import AccessRole, Allowance
from dittomq.security.authentication import Caller
from dittomq.security.gate import Gate

Context = grpc.aio.ServicerContext[Any, Any]

_B = TypeVar("_B")

_CURRENT: "ContextVar[Permit | None]" = ContextVar("permit", default=None)


class Permit:
    """One call that was let in."""

    __slots__ = ("_allowance", "_gate", "_places", "_state", "caller")

    def __init__(self, gate: Gate, places: Places, caller: Caller) -> None:
        """Raises PermissionDenied."""
        self.caller = caller
        self._gate = gate
        self._places = places
        self._state = gate.state
        self._allowance: Allowance = self._state.allowance(caller, places.role)

    def check(self, request: Any) -> None:
        """Raise PermissionDenied when a request names what the caller may not touch, and what `still` raises."""
        self.still()
        if self._allowance.is_unlimited:
            return
        places = self._places
        if places.role is AccessRole.ADMIN and not places.has_names:
            raise PermissionDenied(f'{self.caller} has no role admin for the cluster: that needs a rule with topics and groups "*"')
        if places.has_names:
            self._check_names(*places.named(request))

    def check_topic(self, topic: str) -> None:
        """Raise PermissionDenied when a call that names no topic is about one that the caller may not touch."""
        group = group_of_topic(topic)
        self._check_names({topic} if not group else (), {group} if group else ())

    def still(self) -> None:
        """Raise Unauthenticated or PermissionDenied when the caller may not go on: rules have changed, or the token is over."""
        if self.caller.until_ms is not None or self._state is not self._gate.state:
            self._gate.check_still(self.caller)
            self._state = self._gate.state
            self._allowance = self._state.allowance(self.caller, self._places.role)

    def _check_names(self, topics: Collection[str], groups: Collection[str]) -> None:
        missing = self._allowance.missing(topics, groups)
        if missing:
            raise PermissionDenied(f"{self.caller} has no role {self._places.role} for {missing}: no rule of the access file gives it")


async def caller_of(gate: Gate, context: Context) -> Caller:
    """Who calls. Raises Unauthenticated, LimitReached."""
    connection: Mapping[str, Iterable[bytes]] = context.auth_context()
    return await gate.caller(context.invocation_metadata() or (), connection)


def let_in(gate: Gate, places: Places, caller: Caller) -> Permit:
    """The permit of the call under way. Raises PermissionDenied."""
    permit = Permit(gate, places, caller)
    _CURRENT.set(permit)
    return permit


def check_permitted(request: Any) -> None:
    """For a handler that takes its requests itself: raise PermissionDenied or Unauthenticated for one that its caller may not make."""
    permit = _CURRENT.get()
    if permit is not None:
        permit.check(request)


def check_topic(topic: str) -> None:
    """For a handler whose requests name a message: raise PermissionDenied when the caller may not touch its topic."""
    permit = _CURRENT.get()
    if permit is not None:
        permit.check_topic(topic)


def checks_its_requests(behavior: _B) -> _B:
    """A method with a stream of requests that calls `check_permitted` with each, and answers what it raises: the stream goes on."""
    behavior.checks_its_requests = True  # type: ignore[attr-defined]
    return behavior


class PermittedContext:
    """A call's context that writes no answer which the caller may no longer have."""

    __slots__ = ("_context", "_permit")

    def __init__(self, context: Context, permit: Permit) -> None:
        self._context = context
        self._permit = permit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def write(self, answer: Any) -> None:
        """Send an answer. Raises Unauthenticated, PermissionDenied."""
        self._permit.still()
        await self._context.write(answer)
