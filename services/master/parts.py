"""What a master is made of before it leads."""

import random
from dataclasses import dataclass

from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.metadata import Metadata
from dittomq.broker.pinning import Pins
from dittomq.broker.role import Grant
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Lane
from dittomq.settings import Loaded
from services.master.config import MasterConfig
from services.master.recovery import Recovery
from services.master.replication import Replication


@dataclass(frozen=True, slots=True)
class NodeParts:
    """`store_lane` is the only lane that writes the log, `sync_lane` syncs it meanwhile."""

    loaded: Loaded[MasterConfig]
    storage: Storage
    store: Store
    store_lane: Lane
    sync_lane: Lane
    metadata: Metadata
    dispatcher: Dispatcher
    recovery: Recovery
    replication: Replication
    pins: Pins
    clock: Clock
    chance: random.Random
    grant: Grant | None
