"""`dittomq serve …`: this process becomes the service."""

import os
import sys

import typer

from dittomq.cli.examples import example

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(name="serve", help="Run one service in the foreground.", no_args_is_help=True)


@app.command(context_settings=_PASS_ON, epilog=example("serve nameserver --check-config"))
def nameserver(context: typer.Context) -> None:
    """Run a nameserver. Flags go to the service: --config FILE, --set KEY=VALUE, --print-config, --check-config."""
    _become("nameserver", context.args)


@app.command(context_settings=_PASS_ON, epilog=example("serve master --config master.toml --check-config"))
def master(context: typer.Context) -> None:
    """Run the master of a broker group. Flags go to the service: --config FILE, --set KEY=VALUE, --print-config, --check-config."""
    _become("master", context.args)


@app.command(context_settings=_PASS_ON, epilog=example("serve slave --config slave.toml --check-config"))
def slave(context: typer.Context) -> None:
    """Run a slave of a broker group. Flags go to the service: --config FILE, --set KEY=VALUE, --print-config, --check-config."""
    _become("slave", context.args)


@app.command(context_settings=_PASS_ON, epilog=example("serve broker --config broker.toml --check-config"))
def broker(context: typer.Context) -> None:
    """Run a node of a broker group as what the group record makes of it. Flags go to the service, as for master and slave."""
    _become("broker", context.args)


def _become(service: str, arguments: list[str]) -> None:
    from dittomq.testing.processes import checkout_root

    root = str(checkout_root())
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", f"services.{service}", *arguments], environment)
