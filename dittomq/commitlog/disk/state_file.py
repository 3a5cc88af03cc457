"""Our own small files in `dittomq/`: replaced whole, and never believed without their checksum.

"DTMQ" │ kind, 4 letters │ version u16 │ CRC-32 u32 over the payload │ length u64 │ payload

The version is 1, but for the identity's, which is the store's format.
"""

import json
import struct
import zlib
from typing import Annotated, Any, TypeVar

import msgspec

from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.errors import DittoError

FOLDER = "dittomq"
ROOM_BYTES = 64 * 1024
"""With less room on the disk no small file of ours is replaced that can wait."""
Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A position, an offset, a count: no file of ours holds a larger one."""
T = TypeVar("T")
_HEAD = struct.Struct(">4s4sHIQ")
_MAGIC = b"DTMQ"
_VERSION = 1


class CorruptStateFile(DittoError):
    """A file of ours does not hold what we wrote."""

    reason = "DAMAGED_SIDE_FILE"


def seal(kind: bytes, payload: bytes, version: int = _VERSION) -> bytes:
    """The bytes of a side file; `kind` has four letters."""
    return _HEAD.pack(_MAGIC, kind, version, zlib.crc32(payload), len(payload)) + payload


def unseal(kind: bytes, data: bytes, path: str) -> bytes:
    """The payload; what lies behind it is ignored. Raises CorruptStateFile."""
    version, payload = unseal_any(kind, data, path)
    if version != _VERSION:
        raise CorruptStateFile(f"{path} has version {version}, this program knows {_VERSION}; use the program that wrote it")
    return payload


def unseal_any(kind: bytes, data: bytes, path: str) -> tuple[int, bytes]:
    """The version in the head, whichever it is, and the payload. The checksum does not cover the version. Raises CorruptStateFile."""
    if len(data) < _HEAD.size:
        raise CorruptStateFile(f"{path} is damaged: it has {len(data)} bytes")
    magic, found, version, crc, length = _HEAD.unpack_from(data)
    if magic != _MAGIC or found != kind:
        raise CorruptStateFile(f"{path} is damaged: it does not begin as it should")
    payload = data[_HEAD.size : _HEAD.size + length]
    if len(payload) != length or zlib.crc32(payload) != crc:
        raise CorruptStateFile(f"{path} is damaged: its checksum does not match")
    return version, payload


def load(storage: Storage, name: str, kind: bytes) -> bytes | None:
    """The payload of `dittomq/<name>`; None when there is no such file. Raises CorruptStateFile."""
    path = f"{FOLDER}/{name}"
    if not storage.exists(path):
        return None
    return unseal(kind, read_file(storage, path), path)


def save(storage: Storage, name: str, kind: bytes, payload: bytes) -> None:
    """Durably replace `dittomq/<name>`."""
    replace_file(storage, f"{FOLDER}/{name}", seal(kind, payload))


def save_if_room(storage: Storage, name: str, kind: bytes, payload: bytes) -> bool:
    """Durably replace `dittomq/<name>`, which is small, unless the disk is full; whether that was done."""
    has_room = storage.free_bytes() >= ROOM_BYTES
    if has_room:
        save(storage, name, kind, payload)
    return has_room


def load_json(storage: Storage, name: str, kind: bytes, shape: type[T]) -> T | None:
    """The value of that shape in `dittomq/<name>`; None when there is no such file. Raises CorruptStateFile."""
    payload = load(storage, name, kind)
    return None if payload is None else parse(payload, shape, f"{FOLDER}/{name}")


def parse(payload: bytes, shape: type[T], path: str) -> T:
    """The JSON in a payload; what `shape` does not name is left out. Raises CorruptStateFile: a checksum does not tell who wrote it."""
    try:
        return msgspec.json.decode(payload, type=shape)
    except (ValueError, RecursionError) as error:
        raise CorruptStateFile(f"{path} is damaged: it is whole and does not hold what it should ({error})") from error


def save_json(storage: Storage, name: str, kind: bytes, value: Any) -> None:
    """Durably replace `dittomq/<name>`."""
    save(storage, name, kind, json.dumps(value, sort_keys=True).encode())


def remove(storage: Storage, name: str) -> None:
    """Durably remove `dittomq/<name>`, if it is there."""
    if storage.exists(f"{FOLDER}/{name}"):
        storage.unlink(f"{FOLDER}/{name}")
        storage.sync_folder(FOLDER)


def remove_unfinished(storage: Storage) -> None:
    """Remove what a process that died was about to give its name."""
    for name in storage.list_folder(FOLDER):
        if name.startswith("tmp-"):
            storage.unlink(f"{FOLDER}/{name}")
