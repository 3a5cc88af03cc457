"""What a master is made of."""

import random
from dataclasses import dataclass

from dittomq.broker.consumer_offsets import ConsumerOffsets
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.metadata import Metadata
from dittomq.broker.retention_pins import Pins
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.replication.election_events import Elected
from dittomq.settings import Loaded
from services.broker_lifecycle import Lanes, NodeContext
from services.master.config import MasterConfig
from services.master.replicas import Replicas


@dataclass(frozen=True, slots=True)
class MasterParts:
    """`elected` is the election that this master won; it and `watch` are None where there is no group record."""

    loaded: Loaded[MasterConfig]
    store: Store
    lanes: Lanes
    metadata: Metadata
    offsets: ConsumerOffsets
    dispatcher: Dispatcher
    replication: Replicas
    pins: Pins
    place: NodeContext
    elected: Elected | None
    watch: GroupWatch | None
    clock: Clock
    chance: random.Random
