"""Records of every kind that RocketMQ can write into an ordinary queue, as orders to its store."""

import base64
import itertools
import zlib
from collections.abc import Iterator

import lz4.frame
import zstandard

from tests.interop.peer import Line

KINDS_TOPIC = "kinds"
HOSTS = (("10.1.2.3", 49_152), ("2001:db8::7", 10_911))
TRANSACTIONS = (0x0, 0x4, 0x8, 0xC)
# Several tags, and "to be unwrapped": bits that mean nothing to a store.
OTHER_FLAGS = (0x0, 0x2, 0x40)
BODY = b"a body that becomes smaller, " * 40


def every_kind(version: str) -> Iterator[Line]:
    """Each pair of hosts with each transaction state and flag, each compression, and what only 5.x writes."""
    for born, stored, transaction, flags in itertools.product(HOSTS, HOSTS, TRANSACTIONS, OTHER_FLAGS):
        name = f"{transaction:x}-{flags:x}-{born[1]}-{stored[1]}"
        yield record(KINDS_TOPIC, name, BODY, transaction | flags, hosts=(born, stored))
    yield record(KINDS_TOPIC, "zlib", zlib.compress(BODY), 0x1)
    if version.startswith("4."):
        return
    yield record(KINDS_TOPIC, "zlib named", zlib.compress(BODY), 0x301)
    yield record(KINDS_TOPIC, "lz4", bytes(lz4.frame.compress(BODY)), 0x101)
    yield record(KINDS_TOPIC, "zstd", zstandard.ZstdCompressor().compress(BODY), 0x201)
    for born, stored in itertools.product(HOSTS, HOSTS):
        yield record("%RETRY%" + "y" * 150, f"version 2 of {born[1]} and {stored[1]}", BODY, 0, hosts=(born, stored))


def record(
    topic: str, name: str, body: bytes, system_flag: int, *, hosts: tuple[tuple[str, int], tuple[str, int]] = (HOSTS[0], HOSTS[0])
) -> Line:
    """With a key, a tag, and other fields that are not what they mostly are."""
    born, stored = hosts
    return {
        "topic": topic,
        "queue": 0,
        "body": base64.b64encode(body).decode(),
        "flag": -7,
        "systemFlag": system_flag,
        "bornMs": 1_700_000_000_123,
        "bornHost": born,
        "storeHost": stored,
        "reconsumeTimes": 3,
        "preparedOffset": 4_711,
        "properties": {"KEYS": f"key {name.replace(' ', '-')}", "TAGS": "tag", "UNIQ_KEY": f"unique-{name}", "größe": "çok büyük"},
    }
