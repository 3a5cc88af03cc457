"""`dittomq audit …`: the Spark job as a process of its own, and the comparison of two digest files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from dittomq.cli.connect import Nameserver, nameserver_address
from dittomq.cli.examples import example

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(name="audit", help="Prove that the copies are equal. Without a command: run.", invoke_without_command=True)


@app.callback(epilog=example("audit"))
def default(context: typer.Context) -> int | None:
    """Prove that the copies are equal. Without a command: run."""
    return run(context) if context.invoked_subcommand is None else None


@app.command(context_settings=_PASS_ON, epilog=example("audit run --broker a"))
def run(context: typer.Context, nameserver: Nameserver = None) -> int:
    """Compare all copies of all broker groups with Spark. Further flags go to the job: python -m spark.audit run --help.

    Exit code: 0 all equal; otherwise the sum of 1 differs, 2 damaged, 4 metadata, 8 lag, 16 incomplete, 32 canary missed; 64 usage.
    """
    return _job("run", "--nameserver", nameserver_address(nameserver), *context.args)


def _job(*arguments: str) -> int:
    from dittomq.testing.processes import module_environment

    return subprocess.run([sys.executable, "-m", "spark.audit", *arguments], env=module_environment(), check=False).returncode
