"""What is found under a group's key, and is not that group's."""

from dittomq.doors.coordination import GroupKey, Versioned
from dittomq.errors import UnreadableRecord


def of_group(found: Versioned | None, key: GroupKey, where: str) -> Versioned | None:
    """`found` itself. Raises UnreadableRecord when its members are nodes of another broker group: it was copied from there."""
    foreign = [] if found is None else [each.node for each in found.record.members if each.node.rpartition("/")[0] != key.broker]
    if foreign:
        raise UnreadableRecord(where, f"under the name of {key} it names {', '.join(foreign)}, of another broker group")
    return found
