"""To which broker group a store belongs (`dittomq/group`): a disk of another one is refused before its log is compared or truncated."""

import json
from dataclasses import asdict, dataclass
from typing import Final

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import StoreOpenFailed

_NAME: Final = "group"
_KIND: Final = b"HOME"


@dataclass(frozen=True, slots=True)
class StoreOwner:
    """A broker group of a cluster."""

    cluster: str
    broker: str

    def __str__(self) -> str:
        return f"broker group {self.broker} of cluster {self.cluster}"


def check_cluster(storage: Storage, home: StoreOwner, path: str) -> None:
    """Raise StoreOpenFailed for a store of another group, or when that cannot be known. A store that has none yet is anybody's."""
    try:
        found = _load(storage)
    except state_file.CorruptStateFile as damaged:
        raise StoreOpenFailed(path, f"{damaged}; make sure that it is this node's disk, then delete that file") from damaged
    except OSError as error:
        raise StoreOpenFailed(path, str(error)) from error
    if found is not None and found != home:
        raise StoreOpenFailed(path, f"it is of {found} and this node is of {home}; mount this node's own disk, or an empty one")


def settle(storage: Storage, home: StoreOwner) -> None:
    """Durably note the group of an open store that has none yet; on a full disk a later start does."""
    if _load(storage) is None:
        state_file.save_if_room(storage, _NAME, _KIND, json.dumps(asdict(home), sort_keys=True).encode())


def _load(storage: Storage) -> StoreOwner | None:
    return state_file.load_json(storage, _NAME, _KIND, StoreOwner)
