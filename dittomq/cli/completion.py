"""`dittomq completion`."""

import os
from typing import Annotated, Literal

import typer

from dittomq.cli.examples import example

Shell = Literal["bash", "zsh", "fish", "powershell", "pwsh"]


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("completion", epilog=example("completion bash"))(completion)


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="For which shell.")]) -> None:
    """Print the script that lets a shell complete commands: source it, or save it where your shell looks for completions."""
    # The variable by which the script itself asks for completions also asks for the script; it is printed, and the process ends.
    os.environ["_DITTOMQ_COMPLETE"] = f"source_{shell}"
    context.find_root().command.main([], prog_name="dittomq")
