"""Stops or starts automatic failover of a group: a flag in the group record, which any of its nodes changes."""

from hashlib import sha256
from typing import Final

from dittomq.broker.group_watch import GroupWatch
from dittomq.doors.coordination import Written
from dittomq.errors import InvalidField, NotReady
from dittomq.group_record import GroupRecord
from dittomq.wire.admin import PauseOrder

_TRIES: Final = 5  # the master changes the record too, once a second at most


async def set_paused(watch: GroupWatch, order: PauseOrder) -> bool:
    """Set the flag by compare-and-set; whether it was another one before. Raises NotReady, which leaves it open whether it was set."""
    if order.broker != watch.key.broker:
        raise InvalidField("broker", f'this node is of {watch.key.broker}, not of "{order.broker}"')
    for attempt in range(_TRIES):
        await watch.read()
        found = watch.found
        if found is None or watch.problem:
            raise NotReady(str(watch.key), watch.problem or f"there is no group record in {watch.store_name}")
        if found.record.paused == order.paused:
            return attempt > 0
        if order.validate_only:
            return True
        outcome = await watch.write(_paused(found.record, paused=order.paused), found)
        if isinstance(outcome, Written):
            await watch.read()
            return True
    raise NotReady(str(watch.key), f"the group record in {watch.store_name} did not take the change in {_TRIES} attempts; ask again")


def _paused(record: GroupRecord, *, paused: bool) -> GroupRecord:
    """Two writers that want the same of one record write the same."""
    write = sha256(f"{record.write} {paused}".encode()).hexdigest()[:32]
    return record.next(write, paused=paused)
