"""Groups that confirm as tests see them: two copies asked for, one at least, flushed on both."""

from dataclasses import replace

from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm import Confirm, ConfirmRules

RULES = ConfirmRules(
    sync_master=True,
    sync_flush=True,
    release_flushed=True,
    in_sync_replicas=2,
    min_in_sync_replicas=1,
    max_gap_bytes=1_000_000,
    max_lag_s=15.0,
    write_deadline_s=3.0,
)
SMALL_GAP = replace(RULES, max_gap_bytes=1_000)


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def confirm(rules: ConfirmRules = SMALL_GAP, members: tuple[str, ...] = ("a/1",)) -> Confirm:
    """One whose log is empty, with these slaves carried over."""
    return Confirm(rules, end=at(0), confirmed=at(0), members=members, now=0.0)
