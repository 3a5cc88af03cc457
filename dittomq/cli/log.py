"""`dittomq log …`: reads a store on disk, RocketMQ's or ours, without any service, and changes nothing."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dittomq.cli.connect import JsonFlag
from dittomq.cli.examples import example
from dittomq.cli.output import progress, say, say_json
from dittomq.errors import UnreadableStore

if TYPE_CHECKING:  # `--help` must not wait for it
    from dittomq.commitlog.digest_file import Range
    from dittomq.commitlog.storage import Storage

app = typer.Typer(name="log", help="Read a store on disk, RocketMQ's or ours; nothing in it is changed.", no_args_is_help=True)

Store = Annotated[Path, typer.Argument(metavar="STORE", help="The folder that holds commitlog/.")]


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
    from dittomq.cli.digests import digest_line, write_digest
    from dittomq.commitlog.digest_file import digest_store

    asked = None if only is None else _range(only)
    storage = _storage(store)
    with progress("digest", None) as advance:
        made = digest_store(storage, str(store), asked, _steps(advance))
    write_digest(output, made)
    if json:
        say_json({"store": str(store), "kind": made.kind, "segments": len(made.segments), "low_offset": made.low, "end_offset": made.end})
    else:
        say(digest_line(made, str(store)))


def _storage(store: Path) -> "Storage":
    from dittomq.commitlog.storage import OsStorage

    if not store.is_dir():
        raise UnreadableStore(str(store), "there is no such folder")
    return OsStorage(store)


def _range(text: str) -> "Range":
    from dittomq.commitlog.digest_file import Range

    match = re.fullmatch(r"([\d,]+)\.\.([\d,]+)", text)
    if match is None:
        raise typer.BadParameter(f'"{text}" is no range; write for example 31,457,280..32,505,856', param_hint="--bytes")
    return Range(int(match[1].replace(",", "")), int(match[2].replace(",", "")))


def _steps(advance: Callable[[int], None]) -> Callable[[int, int], None]:
    done_before = 0

    def hear(done: int, _total: int) -> None:
        nonlocal done_before
        advance(done - done_before)
        done_before = done

    return hear
