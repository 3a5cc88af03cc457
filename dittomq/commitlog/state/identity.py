"""Which version of dittomq one must have to open a store, and how often its log was truncated: `dittomq/identity`.

Every open reads it first. A newer version that is about to write what older ones would misread raises the store's *format* before;
older ones then refuse the store, change nothing, and name the version that raised it. The format is never lowered. It stands in
the payload, under the checksum, and as the file's own version: releases that know no formats refuse what is not version 1.
Whatever a later format changes, this file stays a side file whose JSON names `format` and `written_by`.
"""

import contextlib
import json
from dataclasses import dataclass, replace
from typing import TypeVar

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.errors import StoreOpenFailed
from dittomq.version import VERSION

FORMAT = 5
"""The newest format that this version understands; docs/store-format.md lists what each of them brought."""

REPLICA_FORMAT = 5
"""From this one on `dittomq/replica` says who the replica is. Every store that this version opens has it."""

_NAME = "identity"
_KIND = b"IDEN"
_PATH = f"{state_file.FOLDER}/{_NAME}"
_FIRST_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """What every format of the file says."""

    format: int = _FIRST_FORMAT
    written_by: str = ""


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """`generation` counts the truncations. `written_by` is the version that made the store or last raised its format; "": not known.

    `replica_uuid` is that of a format below REPLICA_FORMAT; "" from then on.
    """

    generation: state_file.Number
    replica_uuid: str = ""
    format: int = _FIRST_FORMAT
    written_by: str = ""


_S = TypeVar("_S", StoreIdentity, _Stated)


def refuse_newer(storage: Storage, name: str) -> None:
    """Raise StoreOpenFailed for a store that only a newer version understands. A damaged identity is for `load` to name."""
    with contextlib.suppress(state_file.CorruptStateFile):
        found = _load(storage, _Stated)
        if found is not None and found.format > FORMAT:
            writer = found.written_by
            raise StoreOpenFailed(
                name,
                f"it has format {found.format} since dittomq {writer} wrote to it, and this is dittomq {VERSION}, "
                f"which understands formats up to {FORMAT}; use dittomq {writer} or a newer one",
            )


def load(storage: Storage) -> StoreIdentity | None:
    """None for a store that was never ours. `refuse_newer` has been asked before. Raises CorruptStateFile."""
    return _load(storage, StoreIdentity)


def save(storage: Storage, identity: StoreIdentity) -> None:
    """Durably replace it."""
    value: dict[str, int | str] = {"generation": identity.generation, "format": identity.format, "written_by": identity.written_by}
    if identity.format < REPLICA_FORMAT:
        value |= {"replica_uuid": identity.replica_uuid}
    payload = json.dumps(value, sort_keys=True).encode()
    replace_file(storage, _PATH, state_file.seal(_KIND, payload, identity.format))


def create(storage: Storage) -> StoreIdentity:
    """Durably make it for a new store, whose `dittomq/replica` is there already."""
    identity = StoreIdentity(0, format=FORMAT, written_by=VERSION)
    save(storage, identity)
    return identity


def raise_format(storage: Storage, to: int) -> None:
    """Durably let the store have at least format `to`; before the first byte that versions of a lower one would misread.

    One caller at a time changes the identity.
    """
    assert to <= FORMAT, "who raises a format understands it"
    held = load(storage)
    assert held is not None, "an open store has an identity"
    if held.format < to:
        save(storage, replace(held, format=to, written_by=VERSION))


def _load(storage: Storage, shape: type[_S]) -> _S | None:
    """What the file says; a store of a release that knew no formats has the first."""
    if not storage.exists(_PATH):
        return None
    version, payload = state_file.unseal_any(_KIND, read_file(storage, _PATH), _PATH)
    found = state_file.parse(payload, shape, _PATH)
    if version != found.format:
        raise state_file.CorruptStateFile(f"{_PATH} is damaged: its head has version {version} and it holds format {found.format}")
    return found
