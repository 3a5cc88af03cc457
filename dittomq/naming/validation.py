"""What a registration may contain: nameservers refuse the rest, brokers do not send it. How much of it, the wire has looked at before."""

import re
from collections.abc import Iterable, Mapping

from dittomq.errors import InvalidField
from dittomq.metadata.topics import check_topic_name
from dittomq.offsets import LAST_EPOCH
from dittomq.routes import DEFAULT_NETWORK, HeartbeatRequest, Registration, TopicQueues
from dittomq.wire.naming import MAX_TOPICS

MAX_TOPIC_CHARACTERS = 127
MAX_QUEUES = 1_024
MAX_BROKER_ID = 2**31 - 1
MAX_ADDRESS_CHARACTERS = 255
MAX_PORT = 65_535
ALL_PERMISSIONS = 7

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,127}")
_UUID = re.compile(r"[0-9a-f]{32}")
_NETWORK = re.compile(r"[a-z0-9_-]{1,63}")
_ADDRESS = re.compile(r"\[?[a-zA-Z0-9_.:-]+\]?:[0-9]{1,5}")


def check_registration(registration: Registration) -> None:
    """Raise InvalidField unless every field keeps its limits."""
    _match("broker", _NAME, registration.broker, "1 to 127 letters, digits, dots, dashes or underscores")
    _match("replica_uuid", _UUID, registration.replica_uuid, "32 hex digits")
    _between("broker_id", registration.broker_id, 0, MAX_BROKER_ID)
    _between("configured_id", registration.configured_id or 0, 0, MAX_BROKER_ID)
    _between("epoch", registration.epoch, 0, LAST_EPOCH)
    _between("permission", registration.permission, 0, ALL_PERMISSIONS)
    _between("registration_period_ms", registration.registration_period_ms, 1, 3_600_000)
    _check_addresses("addresses", registration.addresses)
    _check_addresses("replication_addresses", registration.replication_addresses)
    for queues in registration.topics:
        _check_topic(queues)


def check_beat(beat: HeartbeatRequest) -> None:
    """Raise InvalidField unless every field keeps its limits."""
    _between("epoch", beat.epoch, 0, LAST_EPOCH)


def registrable(topics: Iterable[TopicQueues]) -> tuple[tuple[TopicQueues, ...], tuple[str, ...]]:
    """The topics that a registration may contain, and in words why each of the others is not among them."""
    taken: list[TopicQueues] = []
    left_out: list[str] = []
    for queues in topics:
        try:
            _check_topic(queues)
            _between("number of topics", len(taken) + 1, 0, MAX_TOPICS)
            taken.append(queues)
        except InvalidField as problem:
            left_out.append(f"{queues.topic[:MAX_TOPIC_CHARACTERS]}: {problem}")
    return tuple(taken), tuple(left_out)


def check_network(network: str) -> None:
    """Raise InvalidField unless `network` is a legal name."""
    _match("network", _NETWORK, network, "1 to 63 lower-case letters, digits, dashes or underscores")


def check_address(field: str, network: str, address: str) -> None:
    """Raise InvalidField unless `network` is a legal name and `address` one that can be dialed."""
    check_network(network)
    known = len(address) <= MAX_ADDRESS_CHARACTERS and _ADDRESS.fullmatch(address)
    if not known or int(address.rpartition(":")[2]) > MAX_PORT:
        raise InvalidField(field, f'"{address[:MAX_ADDRESS_CHARACTERS]}" is not "host:port"')


def _check_topic(queues: TopicQueues) -> None:
    check_topic_name(queues.topic)
    _between("read_queues", queues.read_queues, 0, MAX_QUEUES)
    _between("write_queues", queues.write_queues, 0, MAX_QUEUES)
    _between("permission", queues.permission, 0, ALL_PERMISSIONS)


def _check_addresses(field: str, addresses: Mapping[str, str]) -> None:
    if DEFAULT_NETWORK not in addresses:
        raise InvalidField(field, f'the address on network "{DEFAULT_NETWORK}" is missing')
    for network, address in addresses.items():
        check_address(field, network, address)


def _match(field: str, pattern: re.Pattern[str], value: str, rule: str) -> None:
    if not pattern.fullmatch(value):
        raise InvalidField(field, f'"{value[:127]}" is not {rule}')


def _between(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidField(field, f"{value:,} is outside [{low:,}, {high:,}]")
