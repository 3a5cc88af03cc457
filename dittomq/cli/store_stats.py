"""What `log stats` prints of a store on disk."""

from collections.abc import Iterable
from datetime import UTC, datetime

from dittomq.cli.output import printable, table
from dittomq.cli.store_items import report_document, report_lines
from dittomq.commitlog.offline.stats import Measured, QueueTally

_NO_TIME = "-"


def stats_lines(measured: Measured) -> list[str]:
    """Whose store it is and when it was filled; the verdict with the first findings; a line for each topic."""
    store, tallies = measured.store, measured.tallies
    first, last = _range(tallies)
    whose = "dittomq" if store.ours else "RocketMQ"
    log = f"{len(store.starts):,} × {store.segment_bytes:,} bytes of log"
    head = f"{whose} store, {log}, {len(tallies):,} queues, {first} to {last}"
    rows: list[tuple[str, ...]] = [("RECORDS", "BYTES", "QUEUES", "FIRST STORED", "LAST STORED", "TOPIC")]
    for topic, queues in sorted(measured.topics.items()):
        mine = list(queues.values())
        counts = (sum(each.records for each in mine), sum(each.record_bytes for each in mine), len(mine))
        rows.append((*(f"{count:,}" for count in counts), *_range(mine), printable(topic)))
    return [head, *report_lines(measured.report), *table(rows)]


def stats_document(measured: Measured) -> dict[str, object]:
    """The same for programs, with every queue; times in ms."""
    store, tallies = measured.store, measured.tallies
    return {
        "ours": store.ours,
        "segments": len(store.starts),
        "segment_bytes": store.segment_bytes,
        **_sums(tallies),
        "topics": [
            {
                "topic": topic,
                **_sums(queues.values()),
                "queues": [
                    {"queue": queue, "first_offset": tally.first_offset, "last_offset": tally.last_offset, **_sums([tally])}
                    for queue, tally in sorted(queues.items())
                ],
            }
            for topic, queues in sorted(measured.topics.items())
        ],
        "verified": report_document(measured.report),
    }


def _sums(tallies: Iterable[QueueTally]) -> dict[str, object]:
    mine = list(tallies)
    return {
        "records": sum(each.records for each in mine),
        "record_bytes": sum(each.record_bytes for each in mine),
        "body_bytes": sum(each.body_bytes for each in mine),
        "oldest_store_ms": min((each.oldest_ms for each in mine), default=None),
        "newest_store_ms": max((each.newest_ms for each in mine), default=None),
    }


def _range(tallies: list[QueueTally]) -> tuple[str, str]:
    if not tallies:
        return _NO_TIME, _NO_TIME
    return _moment(min(each.oldest_ms for each in tallies)), _moment(max(each.newest_ms for each in tallies))


def _moment(store_ms: int) -> str:
    """Date and time in UTC; the number itself where no calendar has such a day."""
    try:
        return f"{datetime.fromtimestamp(store_ms // 1_000, UTC):%Y-%m-%dT%H:%M:%S}.{store_ms % 1_000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{store_ms:,} ms"
