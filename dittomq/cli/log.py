"""`dittomq log …`: works on a store on disk, without any service. All but `new-identity` read RocketMQ's stores too, and change nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dittomq.cli.connect import JsonFlag
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.output import progress, say, say_json
from dittomq.cli.quantities import bounds
from dittomq.errors import StoreOpenFailed

if TYPE_CHECKING:  # `--help` must not wait for it
    from dittomq.commitlog.disk.storage import Storage
    from dittomq.commitlog.offline.store_digest import Range

app = typer.Typer(name="log", help="Read a store on disk, RocketMQ's or ours; only new-identity changes it.", no_args_is_help=True)

Store = Annotated[Path, typer.Argument(metavar="STORE", help="The folder that holds commitlog/.")]


@app.command(epilog=example("log dump .dittomq/a-0 --max 3"))
def dump(
    store: Store,
    start: Annotated[int, typer.Option("--from", min=0, metavar="BYTE", help="First byte of the log to look at.")] = 0,
    limit: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many records.")] = None,
    json: JsonFlag = False,
) -> None:
    """Print every record of a store, with where it lies and whether its checksums hold; what cannot be read is named too."""
    from dittomq.cli.store_items import item_document, item_line
    from dittomq.commitlog.offline.open_store import items, open_on_disk

    left, found = limit, open_on_disk(_storage(store), str(store))
    with progress("dump", found.stop - found.starts[0], beside_lines=True) as advance:
        for item in items(found, _steps(advance)):
            if item.end <= start:
                continue
            if left == 0:
                return
            if json:
                say_json(item_document(item), stream=True)
            else:
                say(item_line(item))
            left = None if left is None else left - 1


@app.command(epilog=example("log verify .dittomq/a-0"))
def verify(store: Store, json: JsonFlag = False) -> int:
    """Prove a store against itself: every checksum, queue offsets without gaps, queues that name exactly the log's records.

    Exit code 3 when something is wrong. A torn end is what a kill leaves: the next start cuts it.
    """
    from dittomq.cli.store_items import report_document, report_lines
    from dittomq.commitlog.offline.open_store import open_on_disk
    from dittomq.commitlog.offline.verify import verify as verify_store
    from dittomq.rpc.buffers import keep_buffers

    keep_buffers()
    found = open_on_disk(_storage(store), str(store))
    with progress("verify", found.stop - found.starts[0]) as advance:
        report = verify_store(found, _steps(advance))
    if json:
        say_json(report_document(report))
    else:
        for line in report_lines(report):
            say(line)
    return ExitCode.DONE if report.whole else ExitCode.PARTLY


@app.command(epilog=example("log stats .dittomq/a-0"))
def stats(store: Store, json: JsonFlag = False) -> int:
    """Count what a store holds, by topic and queue, with its time range, and verify it on the way.

    Exit code 3 when something is wrong, as with verify. Nothing is locked or written, so a broker may be using the store.
    """
    from dittomq.cli.store_stats import stats_document, stats_lines
    from dittomq.commitlog.offline.open_store import open_on_disk
    from dittomq.commitlog.offline.stats import measure
    from dittomq.rpc.buffers import keep_buffers

    keep_buffers()
    found = open_on_disk(_storage(store), str(store))
    with progress("stats", found.stop - found.starts[0]) as advance:
        measured = measure(found, _steps(advance))
    if json:
        say_json({"store": str(store)} | stats_document(measured))
    else:
        for line in stats_lines(measured):
            say(line)
    return ExitCode.DONE if measured.report.whole else ExitCode.PARTLY


@app.command(epilog=example("log digest .dittomq/a-0 -o master.dmd"))
def digest(
    store: Store,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the digest file goes.")],
    only: Annotated[
        str | None, typer.Option("--bytes", metavar="START..END", help="Only these bytes of the log, record by record.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write digests of a store into a small file, to be compared with another's: dittomq audit compare."""
    from dittomq.cli.digests import digest_line, digest_place, write_digest
    from dittomq.commitlog.offline.store_digest import digest_store

    asked = None if only is None else _range(only)
    storage, place = _storage(store), digest_place(output, store)
    with progress("digest", None) as advance:
        made = digest_store(storage, str(store), asked, _steps(advance))
    write_digest(place, made)
    if json:
        say_json({"store": str(store), "kind": made.kind, "segments": len(made.segments), "low_offset": made.low, "end_offset": made.end})
    else:
        say(digest_line(made, str(store)))


@app.command(name="new-identity", epilog=example("log new-identity .dittomq/a-1"))
def new_identity(store: Store, json: JsonFlag = False) -> None:
    """Give a copied or restored store an id of its own, before its node starts: with one id two nodes would count as one member.

    The node must be stopped. Its log stays; the node joins its group as a new replica, and can lead once it is a member.
    """
    from dittomq.commitlog.offline.new_identity import draw_identity
    from dittomq.doors.chance import os_chance

    old, new = draw_identity(_storage(store), str(store), os_chance())
    if json:
        say_json({"store": str(store), "old_replica": str(old), "new_replica": str(new)})
    else:
        say(f"{store}: replica {old} is replica {new} now")


def _storage(store: Path) -> "Storage":
    from dittomq.commitlog.disk.storage import OsStorage

    if not store.is_dir():
        raise StoreOpenFailed(str(store), "there is no such folder")
    return OsStorage(store)


def _range(text: str) -> "Range":
    from dittomq.commitlog.offline.store_digest import Range

    found = bounds(text)
    if found is None:
        raise typer.BadParameter(f'"{text}" is no range; write for example 31,457,280..32,505,856', param_hint="--bytes")
    return Range(*found)


def _steps(advance: Callable[[int], None]) -> Callable[[int, int], None]:
    done_before = 0

    def report(done: int, _total: int) -> None:
        nonlocal done_before
        advance(done - done_before)
        done_before = done

    return report
