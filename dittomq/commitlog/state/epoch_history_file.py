"""The log's epoch history on disk: `dittomq/lineage`. An entry is durable before the first byte of its epoch is written."""

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.state_file import Number
from dittomq.commitlog.disk.storage import Storage
from dittomq.epoch_history import EpochEntry, EpochHistory, grows
from dittomq.offsets import Epoch, PhysicalOffset

ROW_BYTES = 128
"""More than an entry takes."""
_NAME = "lineage"
_KIND = b"LINE"


def load(storage: Storage) -> EpochHistory:
    """Empty when there is none. Raises CorruptStateFile."""
    rows = state_file.load_json(storage, _NAME, _KIND, list[tuple[Number, int, int, Number]]) or []
    found = tuple(EpochEntry(Epoch(epoch), master_id, incarnation, PhysicalOffset(start)) for epoch, master_id, incarnation, start in rows)
    if not grows(found):
        raise state_file.CorruptStateFile(f"{state_file.FOLDER}/{_NAME} is damaged: its epochs and starts do not grow")
    return found


def save(storage: Storage, epoch_history: EpochHistory) -> None:
    """Durably replace it."""
    state_file.save_json(storage, _NAME, _KIND, [[each.epoch, each.master_id, each.incarnation, each.start] for each in epoch_history])
