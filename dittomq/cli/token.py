"""`dittomq token …`: static tokens, which say who a caller is."""

from typing import Annotated

import typer

from dittomq.cli.examples import example
from dittomq.cli.output import hint, say

app = typer.Typer(name="token", help="Tokens that say who a caller is.", no_args_is_help=True)


@app.callback()
def tokens() -> None:
    """Tokens that say who a caller is."""


@app.command(epilog=example("token new billing >> tokens"))
def new(name: Annotated[str, typer.Argument(help="Whom it names: token:NAME in the access file.")]) -> None:
    """Make a token. The line for the tokens file goes to stdout, the token, which nobody can see again, to stderr."""
    from dittomq.doors.chance import os_chance
    from dittomq.security.tokens import new_token

    token, line = new_token(name, os_chance())
    say(line)
    hint(f"the token, for its holder only: {token}")
