"""Registrations and heartbeats for tests."""

import random
from dataclasses import replace

from dittomq.offsets import Epoch
from dittomq.routes import BrokerState, ChangedTopics, DataVersion, HeartbeatRequest, Registration, Role, TopicQueues
from services.nameserver.key_values import KeyValues
from services.nameserver.key_values_file import Namespaces
from services.nameserver.seen import Now
from tests.support.inline_lane import InlineLane
from tests.support.stores import Machine

UUID_A = "a" * 32
UUID_B = "b" * 32


def orders(queues: int = 8, permission: int = 6) -> TopicQueues:
    return TopicQueues("orders", queues, queues, permission)


def master(uuid: str = UUID_A, *, host: str = "a-0", epoch: int = 7, broker: str = "a") -> Registration:
    """Node a/0, which serves and holds the topic "orders"."""
    return Registration(
        cluster="dittomq",
        broker=broker,
        broker_id=0,
        replica_uuid=uuid,
        epoch=Epoch(epoch),
        role=Role.SYNC_MASTER,
        state=BrokerState.SERVING,
        addresses={"default": f"{host}:10911"},
        replication_addresses={"default": f"{host}:10912"},
        permission=6,
        topics=(orders(),),
        data_version=DataVersion(1, 2, 3),
        registration_period_ms=10_000,
    )


def slave(uuid: str = UUID_B, *, host: str = "a-1", broker_id: int = 1, epoch: int = 7) -> Registration:
    """Node a/1, which follows it."""
    return replace(master(uuid, host=host, epoch=epoch), broker_id=broker_id, role=Role.SLAVE)


def beat(session: str, *, epoch: int = 7, version: DataVersion | None = None, state: BrokerState = BrokerState.SERVING) -> HeartbeatRequest:
    """That of a node that holds what `master` and `slave` hold."""
    return HeartbeatRequest(session, version or DataVersion(1, 2, 3), Epoch(epoch), state)


def beat_with(changes: ChangedTopics, version: DataVersion) -> HeartbeatRequest:
    """That of session "s1", whose topics have changed to that version."""
    return replace(beat("s1", version=version), changes=changes)


def at(ms: int) -> Now:
    """So many milliseconds after a nameserver's start."""
    return Now(ms, 1_000_000 + ms)


def kept_values(found: Namespaces | None = None) -> KeyValues:
    """Values that a nameserver found on a whole disk, none unless given."""
    return KeyValues(found or {}, Machine(random.Random(1)).storage(), InlineLane())
