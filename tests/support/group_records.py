"""Group records for tests of the stores that keep them."""

from dittomq.group_record import GroupRecord, Member, ReplicaId
from dittomq.offsets import Epoch


def group_record(broker: str, write: str, *, epoch: int = 1, revision: int = 1) -> GroupRecord:
    """Of a group of two, the first node its master. `write` names the writer."""
    members = tuple(Member(f"{broker}/{number}", ReplicaId(f"uuid{number}", "1"), f"{broker}-{number}:10912") for number in (0, 1))
    return GroupRecord("birth", Epoch(epoch), revision, members[0].replica, members, 2, write=write)
