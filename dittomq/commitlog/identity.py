"""Who a replica is: its uuid, and the generation that grows whenever its bytes were cut. `dittomq/identity`."""

import random
from dataclasses import dataclass

from dittomq.commitlog import side_file
from dittomq.commitlog.storage import Storage
from dittomq.doors.chance import hex_id

_NAME = "identity"
_KIND = b"IDEN"


@dataclass(frozen=True, slots=True)
class Identity:
    """`generation` counts the cuts."""

    replica_uuid: str
    generation: int


def load(storage: Storage) -> Identity | None:
    """None for a store that was never ours. Raises DamagedSideFile."""
    value = side_file.load_json(storage, _NAME, _KIND)
    return None if value is None else Identity(value["replica_uuid"], value["generation"])


def save(storage: Storage, identity: Identity) -> None:
    """Durably replace it."""
    side_file.save_json(storage, _NAME, _KIND, {"replica_uuid": identity.replica_uuid, "generation": identity.generation})


def create(storage: Storage, chance: random.Random) -> Identity:
    """Durably name a new replica."""
    identity = Identity(hex_id(chance), 0)
    save(storage, identity)
    return identity
