"""Where the cluster is, and the options that commands share."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from dittomq.errors import ConfigError, InvalidField

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client.access import ClusterAccess

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


def cluster_access(asked: str | None) -> "ClusterAccess":
    """The cluster to talk to: the one given, otherwise that of the current context; ConfigError when there is neither.

    Certificates are those of DITTOMQ_CA_FILE, DITTOMQ_CERTIFICATE_FILE and DITTOMQ_KEY_FILE, otherwise the context's.
    The token is that of DITTOMQ_TOKEN_FILE.
    """
    from dittomq.client.access import to_context
    from dittomq.client.context import Context, current_context

    environment = os.environ  # a command belongs to the user who runs it
    if asked:
        return to_context(Context("", checked_nameserver("--nameserver", asked)), environment)
    context = current_context()
    if context is None:
        raise ConfigError(
            "no cluster is chosen",
            "start one here with dittomq local up, or name one with --nameserver HOST:PORT, DITTOMQ_NAMESERVER or dittomq context add",
        )
    checked_nameserver(f'context "{context.name}"', context.nameserver)
    return to_context(context, environment)


def checked_nameserver(origin: str, text: str) -> str:
    """The addresses in the text, separated by commas; ConfigError, which names who said it, when it is none."""
    from dittomq.client.async_client import nameservers_of

    try:
        return ",".join(nameservers_of(text))
    except InvalidField as error:
        raise ConfigError(origin, error.problem) from error
