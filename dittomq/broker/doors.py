"""The five doors of a broker node, and the memory it may use, as its composition root hands them on."""

import random
from dataclasses import dataclass

from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.clock import Clock
from dittomq.doors.transport import Transport
from dittomq.doors.workers import Workers
from dittomq.security.gate import Gate


@dataclass(frozen=True, slots=True)
class BrokerDoors:
    """Everything outside the process, or not determined by its input. `gate`: who may do what; None: everybody everything."""

    transport: Transport
    storage: Storage
    clock: Clock
    chance: random.Random
    workers: Workers
    memory_bytes: int
    gate: Gate | None = None
