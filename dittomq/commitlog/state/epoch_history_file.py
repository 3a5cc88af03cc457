"""The log's lineage on disk: `dittomq/lineage`. An entry is durable before the first byte of its epoch is written."""

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.side_file import Number
from dittomq.commitlog.disk.storage import Storage
from dittomq.epoch_history import Lineage, LineageEntry, grows
from dittomq.offsets import Epoch, PhysicalOffset

ROW_BYTES = 128
"""More than an entry takes."""
_NAME = "lineage"
_KIND = b"LINE"


def load(storage: Storage) -> Lineage:
    """Empty when there is none. Raises DamagedSideFile."""
    rows = side_file.load_json(storage, _NAME, _KIND, list[tuple[Number, int, int, Number]]) or []
    found = tuple(
        LineageEntry(Epoch(epoch), opener_id, incarnation, PhysicalOffset(start)) for epoch, opener_id, incarnation, start in rows
    )
    if not grows(found):
        raise side_file.DamagedSideFile(f"{side_file.FOLDER}/{_NAME} is damaged: its epochs and starts do not grow")
    return found


def save(storage: Storage, lineage: Lineage) -> None:
    """Durably replace it."""
    side_file.save_json(storage, _NAME, _KIND, [[each.epoch, each.opener_id, each.incarnation, each.start] for each in lineage])
