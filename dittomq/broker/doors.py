"""The five doors of a broker node, the memory it may use, and where its spans go, as its composition root hands them on."""

import random
from dataclasses import dataclass

from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.clock import Clock
from dittomq.doors.traces import Traces
from dittomq.doors.transport import Transport
from dittomq.doors.workers import Workers
from dittomq.security.gate import Gate


@dataclass(frozen=True, slots=True)
class BrokerDoors:
    """Everything outside the process, or not determined by its input. `gate` None: everybody may do everything; `traces` None: no spans."""

    transport: Transport
    storage: Storage
    clock: Clock
    chance: random.Random
    workers: Workers
    memory_bytes: int
    gate: Gate | None = None
    traces: Traces | None = None
