"""An audit's document as one self-contained page: no scripts, no other files, plain words first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from spark.audit.history import last_verified
from spark.audit.report import Document
from spark.audit.words import advice, copies_table, finding_facts, finding_sentence, headline, how_we_know, not_compared, table

RUNS_SHOWN = 30

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.15rem;padding:.7rem 1rem;border-left:.5rem solid;margin:0 0 .6rem;overflow-wrap:anywhere}
h1.pass{border-color:#1a7f37;background:#e8f5ec}h1.differs{border-color:#b3261e;background:#fcebea}h1.incomplete{border-color:#9a6700;background:#fff6dd}
h2{font-size:1rem;margin:1.6rem 0 .4rem}table{border-collapse:collapse;width:100%}
.wide{overflow-x:auto}td,th{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #ddd;vertical-align:top}
td,code,.map{font-variant-numeric:tabular-nums}.map,code{font-family:ui-monospace,monospace;white-space:pre;font-size:.85rem}
.X{color:#b3261e;font-weight:700}section{border-left:.25rem solid #b3261e;padding-left:1rem;margin:1rem 0}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}h1.pass{background:#12301c}h1.differs{background:#3a1513}
h1.incomplete{background:#33290d}td,th{border-color:#444}.X{color:#ff8a80}}
"""


def page(run: Document, earlier: Sequence[dict[str, Any]], again: str) -> str:
    """The page of a run. `earlier` are rows of the history, oldest first; `again` is the command that repeats the run."""
    return "\n".join(_page(run, list(earlier), again))


def _page(run: Document, earlier: list[dict[str, Any]], again: str) -> Iterator[str]:
    colour = run["verdict"].split(",")[0].lower()
    title = f"Audit of {run['cluster'] or 'a cluster'}, {run['started_time']}"
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body>"
    yield f'<h1 class="{colour}">{escape(headline(run))}</h1>'
    yield f"<p>Cluster {escape(run['cluster'] or 'unknown')}, {run['started_time']} to {run['ended_time']}</p>"
    yield from _listed("Do this", advice(run))
    yield "<h2>What was compared</h2>"
    yield from _table(table(run))
    yield from _listed("What was not, and why", not_compared(run) or ["nothing: every confirmed byte was compared"])
    yield "<h2>Copies</h2>"
    yield from _table(copies_table(run))
    yield from _maps(run)
    yield from _findings(run, earlier)
    yield from _damaged(run)
    yield from _earlier(earlier)
    yield "<h2>How we know</h2>"
    yield from _table([["", ""], *([name, value] for name, value in how_we_know(run))])
    yield f"<h2>Run again</h2><p><code>{escape(again)}</code></p>"
    seconds = run["duration_ms"] / 1_000
    yield f"<p>Exit status {run['exit_status']} (1 differs, 2 damaged, 16 incomplete); run {escape(run['run'])}, {seconds:.1f} s</p>"
    yield "</body></html>"


def _maps(run: Document) -> Iterator[str]:
    yield "<h2>Map</h2>"
    for group in run["groups"]:
        for copy in group["copies"]:
            cells = escape(copy["map"]).replace("X", '<span class="X">X</span>')
            yield f'<div class="map">{escape(copy["node"])}  [{cells}]  0 - {group["confirmed_offset"]:,}</div>'
    yield "<p>. equal &nbsp; X differs &nbsp; ~ not all checked</p>"


def _findings(run: Document, earlier: list[dict[str, Any]]) -> Iterator[str]:
    total = sum(len(group["findings"]) for group in run["groups"])
    index = 0
    for group in run["groups"]:
        for finding in group["findings"]:
            index += 1
            yield f"<section><h2>Finding {index} of {total}: {escape(finding_sentence(finding))}</h2>"
            since = last_verified(earlier, group["broker"], finding["first_offset"])
            known = f"last verified as equal on all copies at {since}" if since else "no earlier audit of this history compared it"
            yield from _table([["", ""], *([name, value] for name, value in [*finding_facts(finding), ("Before", known)])])
            yield "</section>"


def _damaged(run: Document) -> Iterator[str]:
    rows = [
        [damage["node"], f"{damage['start_offset']:,}", f"{damage['end_offset']:,}", damage["problem"]]
        for group in run["groups"]
        for damage in group["damaged"]
    ]
    if rows:
        yield "<h2>Records that are not whole</h2>"
        yield from _table([["NODE", "FROM BYTE", "TO", "PROBLEM"], *rows])


def _earlier(earlier: list[dict[str, Any]]) -> Iterator[str]:
    shown = earlier[-RUNS_SHOWN:]
    if not shown:
        return
    counts = Counter(row["verdict"] for row in shown)
    summary = ", ".join(f"{verdict.lower()} {count}" for verdict, count in counts.most_common())
    yield f"<h2>Last {len(shown)} runs before this one: {summary}</h2>"
    yield from _table(
        [["RUN", "VERDICT", "FINDINGS", "SECONDS"]]
        + [[row["run"], row["verdict"], str(row["findings"]), f"{row['seconds']:.1f}"] for row in reversed(shown)]
    )


def _listed(title: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as a table; the first is the heading, left out when it is empty."""
    heading, *body = rows
    yield '<div class="wide"><table>'
    if any(heading):
        yield f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in heading)}</tr>"
    for row in body:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table></div>"
