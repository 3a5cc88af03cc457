"""How far the log is known to be durable: `dittomq/watermark`. Recovery never ends the log below it.

Two slots of 4,096 bytes, written in turns, each with a growing number and a checksum: a torn write leaves the other one.
"""

import contextlib
import json
from dataclasses import dataclass

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.state_file import Number
from dittomq.commitlog.disk.storage import Storage, read_file, replace_file

_PATH = "dittomq/watermark"
_KIND = b"WATR"
_SLOT_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Ends as last persisted.

    `closed`: the log ended at `flushed` when it was closed cleanly; whatever lies behind it, someone else wrote.
    """

    number: Number
    flushed: Number
    confirmed: Number
    closed: bool = False


def load(storage: Storage) -> RecoveryPoint | None:
    """The newer whole slot; None when there is no such file. Raises CorruptStateFile when no slot is whole."""
    if not storage.exists(_PATH):
        return None
    data = read_file(storage, _PATH)
    found = []
    for at in (0, _SLOT_BYTES):
        with contextlib.suppress(state_file.CorruptStateFile):
            found.append(state_file.parse(state_file.unseal(_KIND, data[at : at + _SLOT_BYTES], _PATH), RecoveryPoint, _PATH))
    if not found:
        raise state_file.CorruptStateFile(f"{_PATH} is damaged: neither of its two slots is whole")
    return max(found, key=lambda each: each.number)


def save(storage: Storage, recovery_point: RecoveryPoint) -> None:
    """Durably write one slot; the other one stays as it was."""
    with contextlib.closing(storage.open(_PATH)) as file:
        file.pwrite(_slot(recovery_point), recovery_point.number % 2 * _SLOT_BYTES)
        file.fdatasync()


def reset(storage: Storage, recovery_point: RecoveryPoint) -> None:
    """Durably make this the content of both slots, so that nothing older can be read again."""
    replace_file(storage, _PATH, _slot(recovery_point) * 2)


def _slot(recovery_point: RecoveryPoint) -> bytes:
    value = {"number": recovery_point.number, "flushed": recovery_point.flushed, "confirmed": recovery_point.confirmed}
    value |= {"closed": True} if recovery_point.closed else {}
    return state_file.seal(_KIND, json.dumps(value).encode()).ljust(_SLOT_BYTES, b"\0")
