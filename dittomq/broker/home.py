"""To which broker group a store belongs (`dittomq/group`): a disk of another one is refused before anybody compares or cuts anything.

It holds too which broker id the node was configured with when it last opened the store: not the one on the wire, which changes of roles
pass on. `role` compares it.
"""

import json
from dataclasses import asdict, dataclass
from typing import Final

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import UnreadableStore

_NAME: Final = "group"
_KIND: Final = b"HOME"


@dataclass(frozen=True, slots=True)
class Home:
    """A broker group of a cluster."""

    cluster: str
    broker: str

    def __str__(self) -> str:
        return f"broker group {self.broker} of cluster {self.cluster}"


@dataclass(frozen=True, slots=True)
class _Noted(Home):
    """The file. `broker_id`: None in one that an earlier version wrote."""

    broker_id: int | None = None

    @property
    def home(self) -> Home:
        """The group alone."""
        return Home(self.cluster, self.broker)


def refuse_strangers(storage: Storage, home: Home, path: str) -> None:
    """Raise UnreadableStore for a store of another group, or when that cannot be known. A store that has none yet is anybody's."""
    try:
        found = _load(storage)
    except side_file.DamagedSideFile as damaged:
        raise UnreadableStore(path, f"{damaged}; make sure that it is this node's disk, then delete that file") from damaged
    except OSError as error:
        raise UnreadableStore(path, str(error)) from error
    if found is not None and found.home != home:
        raise UnreadableStore(path, f"it is of {found} and this node is of {home}; mount this node's own disk, or an empty one")


def last_id(storage: Storage) -> int | None:
    """The broker id in the configuration of the node that opened the store last; None where nobody noted one. Strangers were refused."""
    found = _load(storage)
    return None if found is None else found.broker_id


def settle(storage: Storage, home: Home, configured_id: int) -> None:
    """Durably note the group of a store that has none yet, and the node's id; on a full disk a later start does.

    The store is open, so nobody else does.
    """
    found, now = _load(storage), _Noted(home.cluster, home.broker, configured_id)
    if found is None or (found.home == home and found != now):
        side_file.save_if_room(storage, _NAME, _KIND, json.dumps(asdict(now), sort_keys=True).encode())


def _load(storage: Storage) -> _Noted | None:
    return side_file.load_json(storage, _NAME, _KIND, _Noted)
