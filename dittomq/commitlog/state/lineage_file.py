"""The log's lineage on disk: `dittomq/lineage`. An entry is durable before the first byte of its epoch is written."""

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset

_NAME = "lineage"
_KIND = b"LINE"


def load(storage: Storage) -> Lineage:
    """Empty when there is none. Raises DamagedSideFile."""
    rows = side_file.load_json(storage, _NAME, _KIND) or []
    return tuple(LineageEntry(Epoch(epoch), opener_id, incarnation, PhysicalOffset(start)) for epoch, opener_id, incarnation, start in rows)


def save(storage: Storage, lineage: Lineage) -> None:
    """Durably replace it."""
    side_file.save_json(storage, _NAME, _KIND, [[each.epoch, each.opener_id, each.incarnation, each.start] for each in lineage])
