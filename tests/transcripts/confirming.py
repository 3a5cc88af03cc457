"""`confirm` on the stage: what is confirmed in one group, and what its master writes into the record. Asks 2 copies, of them 1 at least.

    > MasterAt written=900 flushed=900                  the master's own log
    > StreamBegins node=a/1 at=700                      the slave's stream begins there
    > SlaveAt node=a/1 received=900 flushed=900         an ack; adopted=no: of another epoch; incarnation=2: by another replica
    > StreamEnded node=a/1 goodbye=yes
    > DeadlineMissed end=900 waited_s=3                 a producer waited in vain for so long
    > Holed node=a/1 start=500 end=600                  a slave is told to leave out what is damaged at the master
    > MustLeave node=a/1                                the slave is to be resynced
    > WriteEnded outcome=written                        or conflict, unknown, not_sent
    > Read found=same                                   the record: same, touched, sent, paused, other, none
    > Tick

An answer is a write that must be sent, and what has changed.
"""

from typing import Any

from dittomq.doors.coordination import Conflict, Unknown, Versioned, WriteOutcome, Written
from dittomq.group_record import GroupRecord, Member, ReplicaId, in_order
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.membership import MemberChange, Membership
from dittomq.replication.progress import ConfirmRules
from tests.transcripts.script import shown

_MASTER = "a/0"
_OUTCOMES: dict[str, WriteOutcome | None] = {"conflict": Conflict(), "unknown": Unknown("no answer"), "not_sent": None}


class Group:
    """One group's master. Opened with end, confirmed, members, copies, minimum, expected, silent, released, sync_flush, max_gap_bytes,
    write_deadline_s."""

    ticks = True

    def __init__(self, given: dict[str, Any], now: float) -> None:
        copies = given.get("copies", 2)
        rules = ConfirmRules(
            copies=copies,
            level_copies=copies,
            min_in_sync_replicas=given.get("minimum", 1),
            replicas_expected=given.get("expected", 2),
            sync_flush=given.get("sync_flush", True),
            release_flushed=given.get("released", "flushed") == "flushed",
            max_gap_bytes=given.get("max_gap_bytes", 1_000_000),
            max_lag_s=15.0,
            write_deadline_s=float(given.get("write_deadline_s", 3)),
        )
        nodes = [_MASTER, *_names(given.get("members", ""))]
        record = GroupRecord("b", Epoch(1), 1, _replica(_MASTER), in_order(map(_member, nodes)), given.get("recorded_copies", copies))
        end = PhysicalOffset(given.get("end", 0))
        self._confirmed = ConfirmedOffset(
            rules, own=_replica(_MASTER), node=_MASTER, record=record, end=end, confirmed=given.get("confirmed", end), now=now
        )
        silent = _names(given.get("silent", ""))
        self._membership = Membership(rules, self._confirmed, Versioned(record, "v1"), silent=silent, now=now)
        self._change: MemberChange | None = None
        self._writes = 1
        self._seen = self._now(now)

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """What is to be written, and what has changed."""
        answers: list[str] = []
        if event == "Tick":
            self._confirmed.tick(now)
            if (change := self._membership.decide(now, write=f"w{self._writes}")) is not None:
                self._writes, self._change = self._writes + 1, change
                members = ",".join(_named(member) for member in change.record.members)
                answers.append(f'Write members={members} copies={change.record.copies} why="{change}"')
        elif event in ("WriteEnded", "Read"):
            self._store(event, given, now)
        else:
            self._happen(event, given, now)
        before, self._seen = self._seen, self._now(now)
        changed = [f"{name}={value}" for name, value in self._seen.items() if before.get(name) != value]
        return [*answers, *([" ".join(changed)] if changed else [])]

    def _happen(self, event: str, given: dict[str, Any], now: float) -> None:
        confirmed, node = self._confirmed, given.get("node", "")
        replica = _replica(node, given.get("incarnation", 1))
        match event:
            case "MasterAt":
                confirmed.master_at(written=given["written"], flushed=given["flushed"], now=now)
            case "StreamBegins":
                confirmed.stream_begins(node, replica, given["at"], (), address=f"{node}:1", now=now)
            case "SlaveAt":
                adopted = given.get("adopted", True)
                confirmed.slave_at(node, replica, received=given["received"], flushed=given["flushed"], adopted=adopted, now=now)
            case "StreamEnded":
                confirmed.stream_ended(node, said_goodbye=given.get("goodbye", False), now=now)
            case "DeadlineMissed":
                confirmed.deadline_missed(given["end"], since=now - given.get("waited_s", 3), now=now)
            case "Holed":
                confirmed.holed(node, given["start"], given["end"])
            case "MustLeave":
                self._membership.must_leave(replica)
            case _:
                raise AssertionError(f"a group has no event {event}")

    def _store(self, event: str, given: dict[str, Any], now: float) -> None:
        known = self._membership.known
        if event == "WriteEnded":
            outcome = given["outcome"]
            written = Written(f"v{known.record.revision + 1}")
            self._membership.write_ended(written if outcome == "written" else _OUTCOMES[outcome], now)
            return
        match given["found"]:
            case "none":
                found = None
            case "same":
                found = known
            case "touched":
                found = Versioned(known.record, known.version + "t")
            case "sent":
                assert self._change is not None
                found = Versioned(self._change.record, f"v{self._change.record.revision}")
            case "paused":
                found = Versioned(known.record.next("operator", paused=True), f"v{known.record.revision + 1}")
            case "other":
                found = Versioned(known.record.next("other", epoch=Epoch(2)), f"v{known.record.revision + 1}")
            case _:
                raise AssertionError(f"nothing is found as {given['found']}")
        self._membership.record_read(found, now)

    def _now(self, now: float) -> dict[str, str]:
        refused = self._membership.writes_refused(now)
        left = {node: self._membership.why_left(node) for node in ("a/1", "a/2", "a/3")}
        return {
            "confirmed": str(self._confirmed.confirmed),
            "members": ",".join(_named(member) for member in self._confirmed.record.members),
            "in_sync": ",".join(self._confirmed.in_sync) or "none",
            "degraded": shown(self._confirmed.degraded),
            "state": self._membership.state.name,
            "refused": "no" if refused is None else refused.kind.name,
            **{f"why_{node}_left": f'"{why[0]}"' for node, why in left.items() if why is not None},
            **{node: view.state.name for node in left if (view := self._confirmed.view(node)) is not None},
        }


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _replica(node: str, incarnation: int = 1) -> ReplicaId:
    return ReplicaId(node, str(incarnation))


def _member(node: str) -> Member:
    return Member(node, _replica(node), f"{node}:1")


def _named(member: Member) -> str:
    """Its node, with the incarnation behind a dot where that is not the first."""
    return member.node if member.replica.incarnation == "1" else f"{member.node}.{member.replica.incarnation}"
