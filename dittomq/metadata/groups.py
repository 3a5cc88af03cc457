"""Consumer groups: their settings, their limits, and how one is found."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dittomq.errors import GroupNotFound, InvalidField
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.topics import MAX_QUEUES, nearest_name
from dittomq.routes import DataVersion

MAX_GROUP_CHARACTERS = 120
MAX_RETRIES = 1_000
MAX_BROKER_ID = 2**31 - 1

GROUP_SETTINGS = (
    "consume_enable",
    "consume_from_min_enable",
    "consume_broadcast_enable",
    "consume_message_orderly",
    "retry_queues",
    "retry_max_times",
    "broker_id",
    "which_broker_when_consume_slowly",
)
"""What a caller may ask of a group, in the order of the wire."""

# RocketMQ's own groups: its brokers and tools consume in them. Source: MixAll, PopAckConstants.
RESERVED_GROUPS = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CLIENT_INNER_PRODUCER",
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "FILTERSRV_CONSUMER",
        "SCHEDULE_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)
_RESERVED_PREFIXES = ("CID_RMQ_SYS_", "%RETRY%", "%DLQ%", "%SYS%")

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_SHOWN_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class GroupUpdate:
    """Settings for the group of that name: `fields` of `group`. `known`: the version of the groups that they are for; None: any."""

    group: GroupConfig
    fields: tuple[str, ...]
    known: DataVersion | None = None


def check_group_name(name: str, field: str = "group") -> None:
    """Raise InvalidField for a name that RocketMQ would not take, or whose retry topic would have too long a name."""
    if not name:
        raise InvalidField(field, f"is empty; the name of a consumer group has 1 to {MAX_GROUP_CHARACTERS} characters")
    if len(name) > MAX_GROUP_CHARACTERS:
        raise InvalidField(field, f"{_shown(name)} has {len(name):,} characters; use at most {MAX_GROUP_CHARACTERS}")
    if not _NAME.fullmatch(name):
        raise InvalidField(field, f"{_shown(name)} holds other characters than a group name may; use letters, digits and % | _ - only")


def check_new_group(group: GroupConfig) -> None:
    """Raise InvalidField for settings that a group may not have; the fields are named as in CreateGroupRequest."""
    check_group_name(group.name, "group.name")
    if group.name in RESERVED_GROUPS or group.name.startswith(_RESERVED_PREFIXES):
        raise InvalidField("group.name", f"{_shown(group.name)} is reserved for the system; choose another name")
    for field, low, high in (
        ("retry_queues", 1, MAX_QUEUES),
        ("retry_max_times", 0, MAX_RETRIES),
        ("broker_id", 0, MAX_BROKER_ID),
        ("which_broker_when_consume_slowly", 0, MAX_BROKER_ID),
    ):
        number = getattr(group, field)
        if not low <= number <= high:
            raise InvalidField(f"group.{field}", f"{number:,} is outside {low:,} to {high:,}; ask for a number in between")


def updated_group(group: GroupConfig, update: GroupUpdate) -> GroupConfig:
    """The group with its new settings, the same object when it has them. Refuses what a new group may not have."""
    after = replace(group, **{name: getattr(update.group, name) for name in update.fields})
    check_new_group(after)
    return group if after == group else after


def find_group(groups: Mapping[str, GroupConfig], name: str, where: str) -> GroupConfig:
    """The group of that name, or GroupNotFound with the nearest known name. `where` names the node or cluster."""
    group = groups.get(name)
    if group is None:
        raise GroupNotFound(name, where, nearest_name(name, groups))
    return group


def incarnation_of(version: DataVersion) -> int:
    """The incarnation of a group that comes with this version of the groups: no other version gives the same one."""
    return (version.state_version & 0x7FFF_FFFF) << 32 | version.counter & 0xFFFF_FFFF


def _shown(name: str) -> str:
    """The name's beginning as printable ASCII: it may hold anything."""
    return ascii(name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "...")
