"""What `log dump` and `log verify` print of a store on disk."""

import base64
import ipaddress
from dataclasses import asdict

from dittomq.cli.output import clock_time, printable, shown_body
from dittomq.commitlog.offline.open_store import Item
from dittomq.commitlog.offline.verify import Report
from dittomq.commitlog.records.format import Host

_MAX_SHOWN = 20


def item_line(item: Item) -> str:
    """`0  216 B  orders 3@10  14:03:01.204  {"id":"o-17"}`: first byte, size, topic, queue@offset, store time, body."""
    place = f"{item.start:>14,}  {item.end - item.start:>9,} B"
    record = item.record
    if record is None:
        return f"{place}  {item.problem or item.sort.name.lower()}"
    message = f"{printable(record.topic)} {record.queue}@{record.queue_offset}  {clock_time(record.store_ms, milliseconds=True)}"
    return f"{place}  {message}  {shown_body(record.body)}" + (f"  {item.problem}" if item.problem else "")


def item_document(item: Item) -> dict[str, object]:
    """The same for programs, with every field of the record; the body as stored, in base64."""
    document: dict[str, object] = {
        "start_offset": item.start,
        "end_offset": item.end,
        "sort": item.sort.name.lower(),
        "problem": item.problem or None,
    }
    record = item.record
    if record is None:
        return document
    return document | {
        "topic": record.topic,
        "queue": record.queue,
        "queue_offset": record.queue_offset,
        "store_ms": record.store_ms,
        "store_host": _address(record.store_host),
        "born_ms": record.born_ms,
        "born_host": _address(record.born_host),
        "magic": f"{record.magic:08x}",
        "flag": record.flag,
        "system_flag": record.system_flag,
        "reconsume_times": record.reconsume_times,
        "prepared_offset": record.prepared_offset,
        "properties": dict(record.properties),
        "body_crc": record.body_crc,
        "body": base64.b64encode(record.body).decode(),
    }


def _address(host: Host) -> str:
    address = ipaddress.ip_address(host.address)
    return f"[{address}]:{host.port}" if address.version == 6 else f"{address}:{host.port}"


def report_lines(report: Report) -> list[str]:
    """The verdict, then the first findings."""
    verdict = "WHOLE" if report.whole else "DAMAGED"
    counts = "".join(f" · {count:,} {kind}" for kind, count in report.counts.items())
    behind = f" · {report.undispatched:,} at the end not yet in their queues" if report.undispatched else ""
    hidden = f" · {report.hidden:,} of deleted topics" if report.hidden else ""
    hidden += f" · {report.without_queue:,} of queues without a file: deleted, or not built yet" if report.without_queue else ""
    lines = [f"{verdict}  {report.records:,} records, bytes {report.low:,} to {report.end:,}{counts}{behind}{hidden}"]
    for finding in report.findings[:_MAX_SHOWN]:
        message = f"{printable(finding.topic)} queue {finding.queue} offset {finding.queue_offset:,}: " if finding.topic else ""
        lines.append(f"  byte {finding.position:,}  {finding.kind}  {message}{printable(finding.problem)}")
    more = sum(report.counts.values()) - _MAX_SHOWN
    return [*lines, f"  and {more:,} more"] if more > 0 else lines


def report_document(report: Report) -> dict[str, object]:
    """The same for programs, with all findings that were kept."""
    return {
        "whole": report.whole,
        "records": report.records,
        "body_bytes": report.bodies_bytes,
        "low_offset": report.low,
        "end_offset": report.end,
        "undispatched": report.undispatched,
        "hidden": report.hidden,
        "without_queue": report.without_queue,
        "counts": {str(kind): count for kind, count in report.counts.items()},
        "findings": [asdict(finding) for finding in report.findings],
    }
