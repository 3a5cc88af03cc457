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
    from dittomq.client.async_client import nameservers_of
    from dittomq.client.context import current_context

    if asked:
        try:
            return ",".join(nameservers_of(asked))
        except InvalidField as error:
            raise ConfigError("--nameserver", error.problem) from error
    context = current_context()
    if context is None:
        raise ConfigError(
            "no cluster is chosen",
            "start one here with dittomq local up, or name one with --nameserver HOST:PORT, DITTOMQ_NAMESERVER or dittomq context add",
        )
    return context.nameserver
