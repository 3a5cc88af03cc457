"""Bugs in elections, promises, and in who is a member."""

from typing import Any

from dittomq.broker.candidate import Candidate
from dittomq.group_record import GroupRecord
from dittomq.offsets import PhysicalOffset
from dittomq.replication import confirmed_offset
from dittomq.replication.membership import Membership
from dittomq.replication.slave_session import SlaveSession
from services.master.in_sync_set import InSyncSet
from services.slave.follower import Follower
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster


async def _nothing(*_: Any, **__: Any) -> None:
    return


def one_promise_is_a_quorum(patches: Patches, _: Cluster) -> None:
    patches.put(GroupRecord, "is_quorum", always(True))


def others_than_members_count(patches: Patches, _: Cluster) -> None:
    """An offset is confirmed when enough replicas hold it, members or not."""

    def end(records: Any, ends: Any) -> PhysicalOffset:
        return min(confirmed_offset.held_end(ends.keys(), ends, min(len(ends), record.needed)) for record in records)

    patches.put(confirmed_offset, "confirmed_end", lambda _: end)


def the_deposed_go_on(patches: Patches, _: Cluster) -> None:
    """A master never learns that the record names another one, and keeps its slaves."""
    patches.put(InSyncSet, "_settled", lambda _: lambda members: members._parts.term.moved())
    patches.put(Membership, "writes_refused", always(None))
    patches.put(SlaveSession, "_not_obeyed", always(""))
    patches.put(Follower, "promised", always(None))
    patches.put(Follower, "end_stream", lambda _: _nothing)


def hearing_masters_is_no_reason(patches: Patches, _: Cluster) -> None:
    """A replica stands whether it hears its master or not, and each one promises."""
    patches.put(Candidate, "_master_is_silent", always(True))
