"""`dittomq audit …`: the Spark job as a process of its own, and the comparison of two digest files."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.output import hint, printable, say, say_json
from dittomq.errors import InvalidField, StartError

DIFFERS = 1
INCOMPLETE = 16

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(name="audit", help="Prove that the copies are equal. Without a command: run.", invoke_without_command=True)


@app.callback(epilog=example("audit"))
def default(context: typer.Context, nameserver: Nameserver = None) -> int | None:
    """Prove that the copies are equal. Without a command: run."""
    context.obj = nameserver
    return _run(nameserver, []) if context.invoked_subcommand is None else None


@app.command(context_settings=_PASS_ON, epilog=example("audit run --broker a", "audit run --json"))
def run(context: typer.Context, nameserver: Nameserver = None) -> int:
    """Compare all copies of all broker groups with Spark. Other flags go to the job: python -m spark.audit run --help lists them.

    Exit code: 0 all equal, otherwise the sum of 1 differs, 2 damaged, 16 incomplete; 64 usage, 128 broken off.
    """
    source = context.get_parameter_source("nameserver")
    is_given_here = source is not None and source.name == "COMMANDLINE"
    return _run(nameserver if is_given_here else context.obj, context.args)


@app.command(context_settings=_PASS_ON, epilog=example("audit show"))
def show(context: typer.Context) -> int:
    """Print an earlier audit again, the last one if none is named, and end with its exit code."""
    return _job("show", *context.args)


@app.command(epilog=example("audit compare master.dmd slave.dmd"))
def compare(
    first: Annotated[Path, typer.Argument(help="Digest file of one store: dittomq log digest STORE -o FILE")],
    second: Annotated[Path, typer.Argument(help="Digest file of the other.")],
    json: JsonFlag = False,
) -> int:
    """Compare two stores by their digest files, anywhere, without access to either.

    Exit code: 0 all equal, otherwise the sum of 1 differs, 16 incomplete.
    """
    from dittomq.cli.digests import comparison_document, comparison_lines, read_digest
    from dittomq.commitlog.offline.compare import Side
    from dittomq.commitlog.offline.compare import compare as compare_digests

    try:
        comparison = compare_digests(Side(str(first), read_digest(first)), Side(str(second), read_digest(second)))
    except (InvalidField, StartError) as unusable:
        # Not 1, which would read as "differs".
        hint(str(unusable))
        return ExitCode.USAGE
    if json:
        say_json(comparison_document(comparison))
    else:
        for line in comparison_lines(comparison):
            say(printable(line))
    return DIFFERS * bool(comparison.differing) + INCOMPLETE * bool(comparison.problems)


def _run(nameserver: str | None, flags: list[str]) -> int:
    access = cluster_access(nameserver)
    tls = access.tls
    named = (("--ca-file", tls.ca), ("--certificate-file", tls.certificate), ("--key-file", tls.key))
    return _job("run", "--nameserver", access.nameserver, *(part for flag, path in named if path for part in (flag, path)), *flags)


def _job(*arguments: str) -> int:
    from dittomq.testing.processes import module_environment

    ended = subprocess.run([sys.executable, "-m", "spark.audit", *arguments], env=module_environment(), check=False).returncode
    return ended if ended >= 0 else ExitCode.INTERNAL  # ended by a signal: no verdict
