"""Where the cluster is, and the options that commands share."""

from typing import Annotated

import typer

from dittomq.errors import ConfigError, InvalidField

Nameserver = Annotated[
    str | None,
    typer.Option(
        "--nameserver",
        envvar="DITTOMQ_NAMESERVER",
        metavar="HOST:PORT",
        help="Where the cluster is; otherwise the current context (dittomq context show).",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="For programs: JSON with a schema version.")]


def nameserver_address(asked: str | None) -> str:
    """The nameserver to ask: the one given, otherwise that of the current context; ConfigError when there is neither."""
    from dittomq.client.context import current_context

    if asked:
        return checked_nameserver("--nameserver", asked)
    context = current_context()
    if context is None:
        raise ConfigError(
            "no cluster is chosen",
            "start one here with dittomq local up, or name one with --nameserver HOST:PORT, DITTOMQ_NAMESERVER or dittomq context add",
        )
    return checked_nameserver(f'context "{context.name}"', context.nameserver)


def checked_nameserver(origin: str, text: str) -> str:
    """The addresses in the text, separated by commas; ConfigError, which names who said it, when it is none."""
    from dittomq.client.async_client import nameservers_of

    try:
        return ",".join(nameservers_of(text))
    except InvalidField as error:
        raise ConfigError(origin, error.problem) from error
