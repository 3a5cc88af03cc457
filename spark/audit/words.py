"""An audit's document in sentences: the first line, what to do, and the whole as text."""

from collections.abc import Iterator
from typing import Any

from spark.audit.report import Document

_REPAIRED = frozenset({"corrupt-header", "corrupt-body", "corrupt-properties", "corrupt-mark", "gap-zero"})


def headline(run: Document) -> str:
    """The first line: verdict and the one thing to know."""
    return f"{run['verdict']}  {_summary(run)}"


def advice(run: Document) -> list[str]:
    """What to do now; empty after a pass."""
    steps = []
    for group in run["groups"]:
        wrong = dict.fromkeys(finding["node"] for finding in group["findings"])
        roles = {copy["node"]: copy["role"] for copy in group["copies"]}
        for node in wrong:
            if node is None:
                steps.append(f"{group['broker']}: nothing tells which copy is wrong; keep all and look at --show-bytes")
            elif _is_damaged(group, node):
                holders = _and(_whole_on(group, node))
                steps.append(f"dittomq repair {node} --run {run['run']}: it fetches them from {holders} while all run; then audit")
            elif roles.get(node) == "SLAVE":
                steps.append(f"{node}: stop it, move its data_dir away, start it empty: it copies all from its master; then audit")
            else:
                holders = _and(_whole_on(group, node))
                steps.append(f"{node} is the master: read the damaged messages from {holders}; do not delete any copy")
        if group["damaged"] and not group["findings"]:
            steps.append(f"{group['broker']}: all copies hold the same damage; look for the message at its producer")
    if "INCOMPLETE" in run["verdict"]:
        steps.append("mend what is listed as not compared, then audit again: what was not read is neither right nor wrong")
    return steps


def _is_damaged(group: Document, node: str) -> bool:
    """Whether checksums tell all that is wrong on the node, so that it notices it by itself when it verifies its records."""
    kinds = {finding["kind"] for finding in group["findings"] if finding["node"] == node}
    return bool(_whole_on(group, node)) and kinds <= _REPAIRED


def text(run: Document) -> str:
    """The report as plain text, in the order of the page."""
    return "\n".join(_lines(run))


def finding_sentence(finding: Document) -> str:
    """One finding in one sentence: how much, where, what, and who has it whole."""
    where = finding["node"] or "one of the copies"
    message = finding["message"]
    if message is None:
        place = f"byte {finding['first_offset']:,}"
    else:
        place = f"{message['topic']} queue {message['queue']} offset {message['queue_offset']:,}, byte {finding['first_offset']:,}"
    count = finding["messages"]
    what = f"{count:,} message{'s are' if count != 1 else ' is'} damaged" if count else f"{finding['differing_bytes']:,} bytes differ"
    whole = finding["whole_on"]
    held = f"; {_and(whole)} hold{'s' if len(whole) == 1 else ''} it whole" if whole else ""
    return f"{what} on {where}: {place} ({finding['kind']}){held}"


def table(run: Document) -> list[list[str]]:
    """One row for each group, the first row being the heading."""
    rows = [["GROUP", "COPIES", "COMPARED", "EQUAL", "DAMAGED", "NOT CHECKED", "VERDICT"]]
    for group in run["groups"]:
        damaged = f"{group['records']['damaged']:,}" if group["records"]["node"] else "not checked"
        compared, unchecked = f"{group['compared_bytes']:,} B", f"{group['not_checked_bytes']:,}"
        rows.append([group["broker"], str(len(group["copies"])), compared, _equal(group), damaged, unchecked, group["verdict"]])
    return rows


def copies_table(run: Document) -> list[list[str]]:
    """One row for each copy, the first row being the heading."""
    rows = [["BROKER", "NODE", "HOLDS", "EPOCH", "EQUAL", "RECORDS WHOLE", "BEHIND AT CUT", "VERDICT"]]
    for group in run["groups"]:
        for index, copy in enumerate(group["copies"]):
            equal = _copy_equal(group, copy, reference=index == 0)
            holds = f"{copy['min_offset']:,} - {copy['end_offset']:,}"
            behind = f"{copy['behind_bytes']:,} B"
            row = [
                group["broker"],
                copy["node"],
                holds,
                str(copy["epoch"]),
                equal,
                _copy_whole(group, copy, equal),
                behind,
                copy["verdict"],
            ]
            rows.append(row)
    return rows


def _copy_equal(group: Document, copy: Document, *, reference: bool) -> str:
    if copy["wrong_bytes"]:
        return f"{copy['wrong_bytes']:,} byte{'s' if copy['wrong_bytes'] > 1 else ''} off"
    if reference or not group["compared_bytes"]:
        return "reference" if reference else "not compared"
    if group["unexplained_leaves"]:
        return f"all but {group['unexplained_leaves']:,} MiB"
    return "100 %" if not group["not_checked_bytes"] else "as far as compared"


def _copy_whole(group: Document, copy: Document, equal: str) -> str:
    records = group["records"]
    if copy["node"] == records["node"]:
        return f"{records['whole']:,}" + (f", {records['damaged']:,} damaged" if records["damaged"] else "")
    return "by identity" if equal == "100 %" and records["node"] and not records["damaged"] else "not checked"


def _summary(run: Document) -> str:
    groups = run["groups"]
    if not groups:
        return "; ".join(run["problems"])
    if run["verdict"] == "PASS":
        return _passed(groups)
    worst = next((group for group in groups if group["findings"] or group["damaged"] or group["unexplained_leaves"]), None)
    if worst is not None:
        incomplete = len(_problems(run))
        tail = f"; {incomplete} thing{'s' if incomplete != 1 else ''} could not be checked" if incomplete else ""
        return f"{worst['broker']}: {_worst(groups, worst)}{tail}"
    problems = _problems(run)
    rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{rest}; {_compared(groups)}"


def _problems(run: Document) -> list[str]:
    return [*run["problems"], *(f"{group['broker']}: {problem}" for group in run["groups"] for problem in group["problems"])]


def _passed(groups: list[Document]) -> str:
    copies = sum(len(group["copies"]) for group in groups)
    who = f"{groups[0]['broker']}: " if len(groups) == 1 else f"{len(groups)} groups, "
    if copies == len(groups):
        records = sum(group["records"]["whole"] for group in groups)
        return f"{who}no second copy is configured; all {records:,} records are whole"
    return f"{who}{copies} copies equal, {_compared(groups)}"


def _compared(groups: list[Document]) -> str:
    compared, total, unchecked = (sum(group[key] for group in groups) for key in ("compared_bytes", "total_bytes", "not_checked_bytes"))
    return f"{compared:,} of {total:,} bytes compared, {unchecked:,} not checked"


def _worst(groups: list[Document], worst: Document) -> str:
    findings = [finding for group in groups for finding in group["findings"]]
    if findings:
        more = f"; {len(findings) - 1:,} more findings" if len(findings) > 1 else ""
        return finding_sentence(worst["findings"][0] if worst["findings"] else findings[0]) + more
    if worst["damaged"]:
        first = worst["damaged"][0]
        return f"{len(worst['damaged']):,} damaged on {first['node']}, first at byte {first['start_offset']:,}: {first['problem']}"
    return f"{worst['unexplained_leaves']:,} MiB differ"


def _lines(run: Document) -> Iterator[str]:
    yield headline(run)
    for step in advice(run):
        yield f"Do this   {step}"
    yield ""
    yield from columns(table(run))
    yield ""
    yield from columns(copies_table(run))
    for group in run["groups"]:
        for copy in group["copies"]:
            if copy["verdict"] != "PASS":
                yield f"Map  {copy['node']}  [{copy['map']}]  0 - {group['confirmed_offset']:,}; . equal  X differs  ~ not all checked"
    for sentence in not_compared(run):
        yield f"Not compared: {sentence}"
    findings = [finding for group in run["groups"] for finding in group["findings"]]
    for index, finding in enumerate(findings, 1):
        yield ""
        yield f"Finding {index} of {len(findings)}   {finding_sentence(finding)}"
        yield from (f"  {name:<22}{value}" for name, value in finding_facts(finding))
    for group in run["groups"]:
        for damage in group["damaged"]:
            yield f"Damaged   {damage['node']}, bytes {damage['start_offset']:,} to {damage['end_offset']:,}: {damage['problem']}"
    yield ""
    yield from (f"{name}: {value}" for name, value in how_we_know(run))


def not_compared(run: Document) -> list[str]:
    """What was not compared, and why."""
    found = list(run["problems"])
    for group in run["groups"]:
        found += [f"{part['node']}: {part['bytes']:,} bytes {part['why']} (normal)" for part in group["not_compared"] if part["normal"]]
        found += [f"{group['broker']}: {problem}" for problem in group["problems"]]
        if group["transient_differences"]:
            count = group["transient_differences"]
            found.append(f"{group['broker']}: {count} difference(s) were gone when the bytes were read again, so they are not findings")
        if group["ignored_bytes"]:
            found.append(f"{group['broker']}: {group['ignored_bytes']:,} differing bytes behind end-of-file marks mean nothing (normal)")
    return found


def finding_facts(finding: Document) -> list[tuple[str, str]]:
    """Names and values below a finding."""
    facts = []
    message = finding["message"]
    if message is not None:
        keys = f", keys {' '.join(message['keys'])}" if message["keys"] else ""
        name = f"{message['topic']}, queue {message['queue']}, offset {message['queue_offset']:,}{keys}, stored {message['store_time']}"
        facts.append(("Message", name))
    facts.append(("What", f"{finding['words']} ({finding['kind']})"))
    last = f" to {finding['end_offset'] - 1:,}" if finding["differing_bytes"] > 1 else ""
    span = f"{finding['first_offset']:,}{last}"
    facts.append(("Bytes", f"{span}: {finding['differing_bytes']:,} differ, {finding['messages']:,} message(s)"))
    facts.append(("Which copy is wrong", f"{finding['blame']}. Read twice: the same"))
    facts += [(f"Bytes of {part['node']}", f"{part['offset']:,}  {part['hex']}") for part in finding.get("bytes", [])]
    return facts


def how_we_know(run: Document) -> list[tuple[str, str]]:
    """What the verdict rests on, and what this audit does not look at."""
    facts = [
        ("Cut", f"the lowest confirmed offset of each group at {run['cut_time']}; all copies described again at the end"),
        ("Salt", f"{run['salt']}: every digest was made for this run"),
    ]
    for group in run["groups"]:
        records = group["records"]
        if records["node"]:
            read = f"{records['whole']:,} records of {records['queues']:,} queues read one by one on {records['node']}"
            hashed = f"{records['rehashed_bytes']:,} bytes hashed again by the auditor itself"
            facts.append((f"Records of {group['broker']}", f"{read}: checksums and queue offsets; {hashed}"))
    facts.append(("Not looked at", "consume queue files, metadata tables, and what consumers read meanwhile"))
    return facts


def columns(rows: list[list[str]]) -> Iterator[str]:
    """Rows as aligned text."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _equal(group: Document) -> str:
    if len(group["copies"]) < 2 or not group["compared_bytes"]:
        return "-"
    if group["differing_bytes"] or group["unexplained_leaves"]:
        leaves = -(-group["differing_bytes"] // 1024**2) + group["unexplained_leaves"]
        return f"all but {leaves} MiB"
    return "100 %"


def _whole_on(group: Document, node: str) -> list[str]:
    return sorted({other for finding in group["findings"] if finding["node"] == node for other in finding["whole_on"]})


def _and(names: list[Any]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "no copy"
