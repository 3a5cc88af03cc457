"""Slaves of a group, and from where on each wants the log (`dittomq/holds`): the master writes it down, and every slave what it is told."""

import json
from collections.abc import Mapping
from typing import Final

import structlog

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage

_NAME: Final = "holds"
_KIND: Final = b"HOLD"

log = structlog.get_logger()


def load(storage: Storage) -> dict[str, int]:
    """By node, the start of a segment; nothing where the file is not there, or damaged."""
    try:
        found = state_file.load_json(storage, _NAME, _KIND, dict[str, state_file.Number])
    except state_file.CorruptStateFile as damage:
        log.warning("replication_slots_lost", problem=str(damage))
        return {}
    return found or {}


def save_if_room(storage: Storage, slots: Mapping[str, int]) -> bool:
    """Durably replace it; False, and nothing is changed, on a full disk."""
    return state_file.save_if_room(storage, _NAME, _KIND, json.dumps(slots, sort_keys=True).encode())
