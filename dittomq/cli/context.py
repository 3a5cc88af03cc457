"""`dittomq context …`: clusters by name, and which one commands talk to."""

from pathlib import Path
from typing import Annotated

import typer

from dittomq.cli.connect import JsonFlag, checked_nameserver
from dittomq.cli.examples import example
from dittomq.cli.output import hint, printable, say, say_json, table
from dittomq.errors import ConfigError

app = typer.Typer(name="context", help="Clusters by name; commands talk to the current one.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the context.")]


@app.command("list", epilog=example("context list"))
def list_all(json: JsonFlag = False) -> None:
    """List all contexts; the current one is marked."""
    from dittomq.client.context import load_contexts

    contexts = load_contexts()
    if json:
        rows = [{"name": one.name, "nameserver": one.nameserver, "current": one.name == contexts.current} for one in contexts.all]
        say_json({"contexts": rows})
        return
    marked = (("*" if one.name == contexts.current else "", printable(one.name), printable(one.nameserver)) for one in contexts.all)
    for line in table([("", "NAME", "NAMESERVER"), *marked]):
        say(line)


@app.command(epilog=example("context add test localhost:9876", "context add test db.example:9876 --ca-file ca.crt"))
def add(  # noqa: PLR0917  # flags
    name: Name,
    nameserver: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Its nameserver.")],
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="Certificate authority of its nodes, PEM.")] = None,
    certificate_file: Annotated[Path | None, typer.Option("--certificate-file", help="Certificate to show them, PEM.")] = None,
    key_file: Annotated[Path | None, typer.Option("--key-file", help="Key of that certificate, PEM.")] = None,
) -> None:
    """Remember a cluster under a name; one of that name is replaced. With certificates all connections to it are encrypted."""
    from dittomq.client.context import save_context
    from dittomq.security.certificate_files import CertificateFiles
    from dittomq.security.tls import load_certificates

    ca, certificate, key = (str(file.resolve()) if file is not None else "" for file in (ca_file, certificate_file, key_file))
    tls = CertificateFiles(ca, certificate, key, ("--ca-file", "--certificate-file", "--key-file"))
    tls.check(serves=False)
    if tls:
        load_certificates(tls)
    save_context(name, checked_nameserver("HOST:PORT", nameserver), tls)
    hint(f"use it: dittomq context use {name}")


@app.command(epilog=example("context use local"))
def use(name: Name) -> None:
    """Make a context the current one."""
    from dittomq.client.context import use_context

    use_context(name)


@app.command(epilog=example("context show"))
def show(json: JsonFlag = False) -> None:
    """Show the current context."""
    from dittomq.client.context import current_context

    current = current_context()
    if current is None:
        raise ConfigError("no context is current", "choose one: dittomq context use NAME")
    if json:
        say_json({"name": current.name, "nameserver": current.nameserver})
    else:
        say(printable(f"{current.name}  {current.nameserver}"))
