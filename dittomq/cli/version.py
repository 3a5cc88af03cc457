"""`dittomq version`."""

import platform
from typing import Annotated

import typer

from dittomq.cli.examples import example
from dittomq.cli.output import say, say_json
from dittomq.version import VERSION


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version", epilog=example("version"))(version)


def version(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Print which version this is."""
    if json:
        say_json({"version": VERSION, "python": platform.python_version()})
    else:
        say(f"dittomq {VERSION}, Python {platform.python_version()}")
