"""Makes a copied disk another replica: two nodes with one id would count as one member of their group."""

import random
from dataclasses import replace

from dittomq.commitlog import store_swap
from dittomq.commitlog.disk.state_file import CorruptStateFile
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.locks import reported
from dittomq.commitlog.state import identity, replica
from dittomq.doors.chance import hex_id
from dittomq.errors import StoreOpenFailed
from dittomq.group_record import ReplicaId


def draw_identity(storage: Storage, name: str, chance: random.Random) -> tuple[ReplicaId, ReplicaId]:
    """Durably give a store that no process has open a new uuid and a new incarnation; its old id and its new one.

    All else stays: its log, its group record's birth, what it adopted and promised. A copy beside it, which a full resync began, goes.
    Raises StoreLocked; StoreOpenFailed for a store that this version has not opened yet, or that a copy is about to replace;
    StorageFailure.
    """
    identity.refuse_newer(storage, name)
    try:
        _refuse_unopened(storage, name)
        lock = storage.lock("lock")
    except OSError as error:
        raise StoreOpenFailed(name, str(error)) from error
    try:
        with reported("draw an identity"):
            held = replica.settle(storage)
            if held is None:
                raise StoreOpenFailed(name, "dittomq/replica is missing; restore it")
            if store_swap.is_intended(storage):
                raise StoreOpenFailed(name, "a new copy is taking its place; start its node, which finishes that, and stop it again")
            store_swap.discard(storage)
            drawn = replace(held, number=held.number + 1, uuid=hex_id(chance), incarnation=hex_id(chance))
            replica.save(storage, drawn)
    except CorruptStateFile as damage:
        raise StoreOpenFailed(name, f"{damage}; restore it") from damage
    finally:
        lock.release()
    return held.id, drawn.id


def _refuse_unopened(storage: Storage, name: str) -> None:
    try:
        found = identity.load(storage)
    except CorruptStateFile as damage:
        raise StoreOpenFailed(name, f"{damage}; restore it") from damage
    if found is None:
        raise StoreOpenFailed(name, "no node of dittomq has opened it, so it has no identity yet; start its node, which draws one")
    if found.format < identity.REPLICA_FORMAT:
        raise StoreOpenFailed(
            name, f"dittomq {found.written_by or 'of an earlier version'} wrote it; start its node once and stop it again"
        )
