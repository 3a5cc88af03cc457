"""The command `dittomq`: its tree of commands, and the one place where errors become a sentence and an exit code.

Command modules import what they need when they run, so that `dittomq --help` and completion answer at once.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence

import typer

from dittomq.cli import (
    audit,
    cluster,
    completion,
    consume,
    context,
    demo,
    group,
    ha,
    local,
    log,
    message,
    publish,
    repair,
    route,
    serve,
    token,
    top,
    topic,
    version,
    writes,
)
from dittomq.cli.exits import ExitCode, exit_of
from dittomq.cli.output import OutputFailed, flush, hint
from dittomq.errors import DittoError
from dittomq.rpc.polling import wait_with_fewer_threads

app = typer.Typer(
    name="dittomq",
    help="A replicated message log whose copies are provably the same.",
    no_args_is_help=True,
    context_settings={"max_content_width": 120},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _group in (local, context, token, serve, topic, message, group, writes, ha, log, audit):
    app.add_typer(_group.app)
for _command in (demo, cluster, route, publish, consume, repair, top, completion, version):
    _command.add_to(app)


def main() -> None:
    """Run the command line of this process and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As stderr does: messages hold any text, and not every terminal has characters for it.
        sys.stdout.reconfigure(errors="backslashreplace")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the C core's own lines on stderr; it looks when gRPC is loaded
    wait_with_fewer_threads(os.environ)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line; whatever happens, return its exit code and leave at most one sentence on stderr."""
    try:
        result = typer.main.get_command(app).main(list(arguments), prog_name="dittomq", standalone_mode=False)
        flush()
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # typer hands on the whole help
            print(error.format_message(), file=sys.stderr)
            return ExitCode.USAGE
        return _complain(error.format_message().replace("\n\t", " "), ExitCode.USAGE)  # it lists choices one a line
    except DittoError as error:
        if isinstance(error, OutputFailed):
            _print_no_more()
        return _complain(str(error), exit_of(error))
    except SystemExit as ended:
        return _reader_has_gone() if ended.code else ExitCode.DONE  # 0: completion has answered the shell
    except Exception as error:  # noqa: BLE001  # the last resort: a sentence and 128 instead of a traceback
        if isinstance(error, BrokenPipeError) or (isinstance(error, ExceptionGroup) and error.split(BrokenPipeError)[1] is None):
            return _reader_has_gone()  # typer looks for it neither in the group of a task group nor behind the command
        return _complain(
            f"internal error: {type(error).__name__}: {error}; run it again with DITTOMQ_DEBUG=1 and report what it prints",
            ExitCode.INTERNAL,
        )
    return int(result) if isinstance(result, int) else ExitCode.DONE


def _complain(sentence: str, code: ExitCode) -> int:
    if os.environ.get("DITTOMQ_DEBUG") == "1":
        traceback.print_exc()
    hint(sentence)
    return code


def _reader_has_gone() -> int:
    # typer ends with 1 when stdout's pipe is closed, as `| head` does: who read has what it wanted.
    _print_no_more()
    return ExitCode.DONE


def _print_no_more() -> None:
    """What is left to be flushed at the end goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
