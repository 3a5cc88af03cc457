"""`confirm` on the stage: what is confirmed in one group. Asks 2 copies, of them 1 at least, flushed ones, unless told otherwise.

    > MasterAt written=900 flushed=900                  the master's own log
    > SlaveAt node=a/1 received=900 flushed=900         an ack that counts
    > StreamBegins node=a/1 at=700                      the slave is back with so much
    > DeadlineMissed end=900 waited_s=3                 a producer waited in vain for so long
    > DiskGone node=a/1 why="..."                       the disk that acked serves another node, or the node has another disk
    > Holed start=500 end=600                           a slave is told to leave out what is damaged at the master
    > RangeRecorded                                     the begin of the degraded range is durable
    > Tick

An answer is what has changed.
"""

from typing import Any

from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm import Confirm, ConfirmRules
from tests.transcripts.script import shown


class Group:
    """One group's Confirm. Opened with end, confirmed, members, copies, minimum, released, sync_master, sync_flush, max_gap_bytes,
    write_deadline_s."""

    ticks = True

    def __init__(self, given: dict[str, Any], now: float) -> None:
        rules = ConfirmRules(
            sync_master=given.get("sync_master", True),
            sync_flush=given.get("sync_flush", True),
            release_flushed=given.get("released", "flushed") == "flushed",
            in_sync_replicas=given.get("copies", 2),
            min_in_sync_replicas=given.get("minimum", 1),
            max_gap_bytes=given.get("max_gap_bytes", 1_000_000),
            max_lag_s=15.0,
            write_deadline_s=float(given.get("write_deadline_s", 0)),
        )
        end = PhysicalOffset(given.get("end", 0))
        members = [member for member in str(given.get("members", "")).split(",") if member]
        self._confirm = Confirm(rules, end=end, confirmed=given.get("confirmed", end), members=members, now=now)
        self._nodes = members
        self._seen = self._now()

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """What has changed."""
        match event:
            case "MasterAt":
                self._confirm.master_at(written=given["written"], flushed=given["flushed"], now=now)
            case "SlaveAt":
                self._confirm.slave_at(given["node"], received=given["received"], flushed=given["flushed"], now=now)
            case "StreamBegins":
                self._confirm.ends_at(given["node"], given["at"])
            case "DeadlineMissed":
                self._confirm.deadline_missed(given["end"], since=now - given.get("waited_s", 0), now=now)
            case "DiskGone":
                self._confirm.disk_gone(given["node"], given["why"], now=now)
            case "Holed":
                self._confirm.holed(given["node"], given["start"], given["end"])
            case "RangeRecorded":
                self._confirm.range_recorded()
            case "Tick":
                self._confirm.tick(now)
            case _:
                raise AssertionError(f"a group has no event {event}")
        self._nodes = sorted({*self._nodes, *given.get("node", "").split()})
        before, self._seen = self._seen, self._now()
        changed = [f"{name}={value}" for name, value in self._seen.items() if before.get(name) != value]
        return [" ".join(changed)] if changed else []

    def _is_carried(self, node: str) -> bool:
        """Whether it was heard, and counts as in sync only because it was when the last run ended."""
        view, heard = self._confirm.view(node), dict(self._confirm.copies(PhysicalOffset(0), PhysicalOffset(0)))
        return view is not None and node in heard and node in self._confirm.in_sync and not view.in_sync

    def _now(self) -> dict[str, str]:
        confirm = self._confirm
        return {
            "confirmed": str(confirm.confirmed),
            "in_sync": ",".join(confirm.in_sync) or "none",
            "catching_up": ",".join(node for node in self._nodes if self._is_carried(node)) or "none",
            "degrade": confirm.degrade.name,
            "writes": shown(confirm.has_room_for_writes()),
            **{
                f"why_{node}_left": shown(view.why_left)
                for node in self._nodes
                if (view := confirm.view(node)) and view.why_left and not view.in_sync
            },
        }
