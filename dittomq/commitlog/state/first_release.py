"""What a store of dittomq 0.1 remembered in place of `dittomq/replica`: read once, then removed."""

import contextlib
import random

import msgspec

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.state import epoch_history_file
from dittomq.commitlog.state.replica import ReplicaState, new_state
from dittomq.epoch_history import newest_epoch
from dittomq.offsets import LAST_EPOCH, NO_EPOCH, Epoch

_MARKS = ("filling", "incomplete")
_FILES = ("role", "heard", "filled", "degraded", *_MARKS)


class _RoleFile(msgspec.Struct):
    epoch: int


def state_of(storage: Storage, uuid: str, chance: random.Random) -> ReplicaState:
    """What the replica of that uuid goes on with. One that was marked as holding a part of another's log has adopted nothing."""
    newest = newest_epoch(epoch_history_file.load(storage))
    is_part = any(storage.exists(f"{state_file.FOLDER}/{name}") for name in _MARKS)
    known = max(newest, _newest_epoch(storage), _role_epoch(storage))
    return new_state(chance, uuid=uuid, known=known, adopted=NO_EPOCH if is_part else newest)


def remove_files(storage: Storage) -> None:
    """Durably remove what is not read any longer."""
    held = set(storage.list_folder(state_file.FOLDER))
    for name in held.intersection(_FILES):
        state_file.remove(storage, name)


def _newest_epoch(storage: Storage) -> Epoch:
    """The newest epoch that it had noted; none where that cannot be read: what it noted binds no node of this version."""
    with contextlib.suppress(state_file.CorruptStateFile):
        text = (state_file.load(storage, "heard", b"HEAR") or b"").decode("ascii", "replace")
        return _epoch(text.partition(";")[0].partition(" ")[0])
    return NO_EPOCH


def _role_epoch(storage: Storage) -> Epoch:
    """The epoch of its last role change."""
    with contextlib.suppress(state_file.CorruptStateFile):
        grant = state_file.load_json(storage, "role", b"ROLE", _RoleFile)
        return NO_EPOCH if grant is None else _epoch(f"{grant.epoch}")
    return NO_EPOCH


def _epoch(digits: str) -> Epoch:
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else 0
    return Epoch(min(number, LAST_EPOCH - 1))
