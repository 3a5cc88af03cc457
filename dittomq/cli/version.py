"""`dittomq version`."""

import platform
from typing import Annotated

import typer

from dittomq.cli.examples import example
from dittomq.cli.output import say, say_json


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("version", epilog=example("version"))(version)


def version(json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False) -> None:
    """Print which version this is."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        ours = installed("dittomq")
    except PackageNotFoundError:
        ours = "from a source tree that is not installed"
    if json:
        say_json({"version": ours, "python": platform.python_version()})
    else:
        say(f"dittomq {ours}, Python {platform.python_version()}")
