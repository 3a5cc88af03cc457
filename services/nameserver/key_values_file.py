"""All values on the nameserver's disk: `dittomq/key_values`, a sealed side file that is replaced whole."""

import json
from typing import Final

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import Refused, StoreOpenFailed
from services.nameserver.state_folder import refusing, replace_whole

Namespaces = dict[str, dict[str, str]]
"""By namespace and key the value; no namespace is empty."""

_NAME: Final = "key_values"
_KIND: Final = b"KVAL"
_Row = tuple[str, str, str]


def load(storage: Storage, path: str) -> Namespaces:
    """What the file holds, durably, nothing when there is none; the folder is `locked`. Raises StoreOpenFailed, StorageFailure."""
    try:
        found = state_file.load_json(storage, _NAME, _KIND, list[_Row]) or []
    except state_file.CorruptStateFile as damaged:
        remedy = "restore a copy, or delete it and put the values again: order topics, and groups that are not to be written"
        raise StoreOpenFailed(path, f"{damaged}; {remedy}") from damaged
    namespaces: Namespaces = {}
    for namespace, key, value in found:
        namespaces.setdefault(namespace, {})[key] = value
    with refusing(path):
        if namespaces:  # written again: a sync that failed under the process before is not repeated by the next sync
            keep(storage, namespaces)
    return namespaces


def keep(storage: Storage, namespaces: Namespaces) -> Refused | None:
    """Durably replace the file, see `replace_whole`."""
    rows = [[namespace, key, value] for namespace, values in namespaces.items() for key, value in values.items()]
    return replace_whole(storage, _NAME, _KIND, json.dumps(rows).encode())
