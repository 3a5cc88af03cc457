"""`dittomq demo`: the main job from end to end, on real data, with a kill and an audit."""

from pathlib import Path
from typing import Annotated

import typer

from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.output import hint

FOLDER = Path(".dittomq/demo")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo", epilog=example("demo", "demo --records 20000"))(demo)


def demo(
    records: Annotated[
        int | None, typer.Option("--records", min=20_000, help="Only so many records of the data set, all 336,776 otherwise.")
    ] = None,
) -> int:
    """Run a cluster through a crash and prove that nothing is lost: publish, replicate, kill -9, read on, recover, audit.

    Ends with PASS and 0, or says what did not hold and ends with 1. Ends every process it started, in every case.
    """
    from dittomq.cli.demo.steps import DemoFailed
    from dittomq.cli.demo.story import run

    try:
        run(FOLDER, records)
    except DemoFailed as broken:
        hint(f"FAIL: {broken}; every process is stopped, what they wrote stays in {FOLDER}")
        return ExitCode.REFUSED
    return ExitCode.DONE
