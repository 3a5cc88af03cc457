"""Messages with keys, and the files of the key index that they make."""

import random
from collections.abc import Mapping
from dataclasses import replace

from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.queues.key_format import KeyMark, KeySizes
from dittomq.commitlog.queues.key_index import Keyed, KeyIndex
from dittomq.commitlog.records.format import scan
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.message import Draft
from tests.support.stores import SMALL, Machine, draft

SIZES = KeySizes(slots=7, entries=12)
OPTIONS = replace(SMALL, key_sizes=SIZES)
TOPIC = "orders"
Files = Mapping[str, bytes]
"""By name, whole."""


def keyed(*keys: str, body: bytes = b"body") -> Draft:
    return draft(TOPIC, body=body)._replace(properties=f"TAGS\x01tag\x02KEYS\x01{' '.join(keys)}\x02".encode())


def fill(store: Store, numbers: range) -> None:
    for number in numbers:
        keys = [f"key-{number + at}" for at in range(3 if number % 6 == 0 else 1)]
        store.append([AppendBatch([keyed(*keys) if number % 2 == 0 else draft(body=b"x" * 300)])], number * 700)


def kept(store: Store) -> None:
    """All is durable and known to the checkpoint."""
    store.sync()
    store.dispatch(store.end)
    store.checkpoint()


def on_disk(machine: Machine) -> Files:
    files = machine.disk.names.files
    return {path.removeprefix("index/"): inode.read(inode.size, 0) for path, inode in sorted(files.items()) if path.startswith("index/")}


def from_the_log(log: bytes, sizes: KeySizes = SIZES) -> Files:
    """What the index of a whole log must be."""
    return built(messages_of(log), sizes)


def built(messages: list[Keyed], sizes: KeySizes) -> Files:
    machine = Machine(random.Random(1))
    storage = machine.storage()
    storage.make_folder("dittomq")
    index = KeyIndex(storage, OpenFiles(storage, 8), KeyMark(sizes), None)
    index.add(messages)
    index.write()
    return on_disk(machine)


def messages_of(log: bytes) -> list[Keyed]:
    found: list[Keyed] = []
    for base in range(0, len(log), OPTIONS.segment_bytes):
        entries = scan(log[base : base + OPTIONS.segment_bytes], base, base + OPTIONS.segment_bytes).entries
        found += [Keyed(entry.topic, entry.start, entry.store_ms, entry.keyed) for entry in entries if entry.keyed]
    return found
