"""Starts of a master, and the slaves that say hello to it."""

from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import PROTOCOL_VERSION, Hello
from dittomq.replication.group_of_start import LeadershipRules
from dittomq.replication.leadership import Leadership
from dittomq.replication.leadership_decisions import Announce, Decision
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.routes import NO_OPENING

RULES = LeadershipRules(replicas_expected=2, in_sync_replicas=2, sync_flush=True, recover_wait_s=5.0)
ONE: Lineage = (LineageEntry(Epoch(1), 0, 11, PhysicalOffset(0)),)
TWO: Lineage = (*ONE, LineageEntry(Epoch(2), 0, 22, PhysicalOffset(500)))


def own(stopped: Stopped, end: int = 900, lineage: Lineage = ONE) -> OwnLog:
    return OwnLog("a/0", stopped, PhysicalOffset(end), lineage)


def started(rules: LeadershipRules, own: OwnLog, now: float) -> Leadership:
    """A start that has asked the replicas that nameservers list, which know of nothing."""
    leadership = Leadership(rules, own, now)
    leadership.others_say(())
    return leadership


def asked(rules: LeadershipRules, own: OwnLog, now: float) -> Leadership:
    """A start that a nameserver has told, too, that nobody else leads."""
    leadership = started(rules, own, now)
    leadership.nameservers_say(NO_OPENING, settled=True, id_taken="")
    return leadership


def decided(leadership: Leadership, now: float) -> Decision:
    """What it decides when nobody knows of a newer epoch than the one that it announces."""
    decision = leadership.decide(now)
    if not isinstance(decision, Announce):
        return decision
    leadership.announced()
    return leadership.decide(now)


EMPTY = own(Stopped.EMPTY, end=0, lineage=())


def hello(broker_id: int, end: int, lineage: Lineage = ONE, confirmed: int = 0) -> Hello:
    return Hello(
        cluster="c",
        broker="a",
        broker_id=broker_id,
        replica_uuid=f"u{broker_id}",
        protocol_version=PROTOCOL_VERSION,
        min_offset=PhysicalOffset(0),
        end=PhysicalOffset(end),
        flushed=PhysicalOffset(end),
        confirmed=PhysicalOffset(confirmed),
        lineage=lineage,
        digests=(),
        verified_equal=PhysicalOffset(0),
        replication_address=f"a-{broker_id}:10912",
        segment_bytes=65_536,
    )
