"""What probes are told: gRPC health on the data ports and HTTP on the ops port read the same phase."""

from enum import Enum
from typing import ClassVar

from grpc_health.v1 import health, health_pb2

STARTUP = "startup"
READINESS = "readiness"
LIVENESS = "liveness"


class Phase(Enum):
    """Where a service stands."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # started, cannot do its work now
    DRAINING = "draining"


class Health:
    """The phase of one service. Liveness is never taken back: that it answers is the proof."""

    _SERVING: ClassVar = health_pb2.HealthCheckResponse.SERVING
    _NOT_SERVING: ClassVar = health_pb2.HealthCheckResponse.NOT_SERVING

    def __init__(self) -> None:
        self.health = health.aio.HealthServicer()
        self._state = (Phase.STARTING, "starting")
        self._services: list[str] = []

    @property
    def state(self) -> tuple[Phase, str]:
        """The phase, and a clause that says what the service waits for. May be read from any thread."""
        return self._state

    async def cover(self, services: list[str]) -> None:
        """Answer health checks for these services too."""
        self._services += services
        await self.become(*self._state)

    async def become(self, phase: Phase, why: str = "") -> None:
        """Enter `phase`; `why` says what the service waits for. DRAINING is its last one: what ends meanwhile changes nothing."""
        if self._state[0] is Phase.DRAINING:
            return
        self._state = (phase, why)
        ready = self._SERVING if phase is Phase.READY else self._NOT_SERVING
        for name in ["", READINESS, *self._services]:
            await self.health.set(name, ready)
        await self.health.set(STARTUP, self._NOT_SERVING if phase is Phase.STARTING else self._SERVING)
        await self.health.set(LIVENESS, self._SERVING)
