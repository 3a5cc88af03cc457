"""All group records on the nameserver's disk: `dittomq/groups`, a sealed side file that is replaced whole."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import Refused, StoreOpenFailed
from services.nameserver.state_folder import locked, refusing, replace_whole

MAX_GROUPS: Final = 10_000

_NAME: Final = "groups"
_KIND: Final = b"GRPS"


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """One group's record as text, and the version that its last writer was given."""

    document: str
    version: str


Rows = dict[str, KeptRecord]
"""By the name of the broker group."""

_Row = tuple[str, Annotated[str, msgspec.Meta(min_length=1)], Annotated[str, msgspec.Meta(min_length=1)]]


@contextmanager
def opened(storage: Storage, path: str) -> Iterator[Rows]:
    """What the file holds, nothing when there is none. The folder is locked while the block runs.

    What is yielded is durable: the process before may have died between a rename and the sync of its folder. A damaged file is refused.
    Raises StoreLocked, StoreOpenFailed, StorageFailure.
    """
    with locked(storage, path):
        with refusing(path):
            rows = _load(storage, path)
            if rows:  # written again: a sync that failed under the process before is not repeated by the next sync
                keep(storage, rows)
        yield rows


def keep(storage: Storage, rows: Mapping[str, KeptRecord]) -> Refused | None:
    """Durably replace the file, see `replace_whole`."""
    payload = json.dumps([[group, kept.version, kept.document] for group, kept in rows.items()]).encode()
    return replace_whole(storage, _NAME, _KIND, payload)


def _load(storage: Storage, path: str) -> Rows:
    try:
        found = state_file.load_json(storage, _NAME, _KIND, list[_Row]) or []
    except state_file.CorruptStateFile as damaged:
        remedy = "restore nothing older; delete it, and each group makes a new record when all its nodes are there"
        raise StoreOpenFailed(path, f"{damaged}; {remedy}") from damaged
    return {group: KeptRecord(document, version) for group, version, document in found}
