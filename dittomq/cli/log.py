"""`dittomq log …`: reads a store on disk, without any service, and changes nothing."""

import typer

app = typer.Typer(name="log", help="Read a store on disk; nothing in it is changed.", no_args_is_help=True)
