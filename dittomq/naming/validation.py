"""What a registration may contain: nameservers refuse the rest, brokers do not send it. How much of it, the wire has looked at before."""

import re
from collections.abc import Mapping

from dittomq.errors import InvalidField
from dittomq.metadata.made_of_rows import MadeOfRows
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
    if beat.changes is not None:
        for queues in beat.changes.changed:
            _check_topic(queues)


class RegistrableTopics:
    """Leaves out of registrations what nameservers refuse. A topic that was there in the last one is not looked at again."""

    def __init__(self) -> None:
        self._problems: MadeOfRows[TopicQueues, str] = MadeOfRows(_problem_of)

    def of(self, topics: tuple[TopicQueues, ...]) -> tuple[tuple[TopicQueues, ...], tuple[str, ...]]:
        """The topics that a registration may contain, and in words why each of the others is not among them."""
        problems = self._problems.of(topics)
        if len(topics) <= MAX_TOPICS and not any(problems):
            return topics, ()
        taken: list[TopicQueues] = []
        left_out: list[str] = []
        for queues, problem in zip(topics, problems, strict=True):
            too_many = f"number of topics: there are {MAX_TOPICS:,} already" if len(taken) == MAX_TOPICS else ""
            if why := problem or too_many:
                left_out.append(f"{queues.topic[:MAX_TOPIC_CHARACTERS]}: {why}")
            else:
                taken.append(queues)
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


def _problem_of(queues: TopicQueues) -> str:
    try:
        _check_topic(queues)
    except InvalidField as problem:
        return str(problem)
    return ""


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
