"""`python -m spark.audit run|show`: the composition root of the audit.

The exit status is a bit mask: 1 differs, 2 damaged, 16 incomplete; 0 a pass; 64 usage; 128 a crash, never a verdict.
"""

import argparse
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.doors.workers import ThreadWorkers
from dittomq.errors import ConfigError, DittoError, StartError, Unavailable
from dittomq.security.certificate_files import CertificateFiles
from spark.audit import history
from spark.audit.conclude import account
from spark.audit.model import AuditExit
from spark.audit.page import page
from spark.audit.report import Document, document
from spark.audit.run import Settings, World, audit
from spark.audit.tasks import Credentials, transport_with
from spark.audit.words import text

DEFAULT_OUT = Path(".dittomq/audit")
DEFAULT_HISTORY = Path(".dittomq/audit/history")

_INTERRUPTED = 130


class _AuditParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(AuditExit.USAGE, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str]) -> int:
    """Run a command, return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (history.NoSuchRun, StartError) as error:
        print(error, file=sys.stderr)
        return int(AuditExit.USAGE)
    except Unavailable as error:
        print(f"INCOMPLETE  {error}", file=sys.stderr)
        return int(AuditExit.INCOMPLETE)
    except DittoError as error:
        print(error, file=sys.stderr)
        return int(AuditExit.CRASH)
    except KeyboardInterrupt:
        print("interrupted; no verdict", file=sys.stderr)
        return _INTERRUPTED
    except Exception:  # noqa: BLE001  # Python's own status 1 would read as "differs"
        traceback.print_exc()
        return int(AuditExit.CRASH)


def _run(options: argparse.Namespace) -> int:
    from spark.audit.session import SparkRunner, spark_context  # noqa: PLC0415  # `show` needs no Spark

    with _files():  # before anything is read
        for folder in (options.out, options.history):
            folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(nameserver=options.nameserver, broker=options.broker, backoff_s=options.pause)
    tls = CertificateFiles(options.ca_file, options.certificate_file, options.key_file, ("--ca-file", "--certificate-file", "--key-file"))
    shown = Credentials(tls, options.token_file)
    with contextlib.closing(ThreadWorkers()) as workers, transport_with(shown) as transport, spark_context(options.master) as context:
        result = audit(settings, World(transport, OsClock(), os_chance(), workers), SparkRunner(context, shown))
    with _files():
        earlier = history.rows(options.history)
    known = history.known_groups(earlier, result.cluster)
    result = account(result, known, only=options.broker is not None, forget=options.forget)
    found = document(result, show_bytes=options.show_bytes)
    broker = f" --broker {options.broker}" if options.broker else ""
    again = f"python -m spark.audit run --nameserver {options.nameserver}{broker}"
    with _files():
        history.write_private(options.out / "audit.json", json.dumps(found, indent=1))
        history.write_private(options.out / "audit.html", page(found, earlier, again))
        history.keep(options.history, found)
    _print(found, as_json=options.json)
    print(f"report: {options.out / 'audit.html'}   history: {options.history}", file=sys.stderr)
    return int(found["exit_status"])


def _show(options: argparse.Namespace) -> int:
    with _files():
        found = history.load(options.history, options.run)
    _print(found, as_json=options.json)
    return int(found["exit_status"])


@contextlib.contextmanager
def _files() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            "--out and --history", f"{error.filename or 'a file'} cannot be used: {error.strerror}; name other folders"
        ) from error


def _print(found: Document, *, as_json: bool) -> None:
    """Print it; a reader that has seen enough changes nothing of the verdict."""
    try:
        print(json.dumps(found) if as_json else text(found), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = _AuditParser(prog="python -m spark.audit", description="Compare all copies of all broker groups, byte by byte.")
    commands = parser.add_subparsers(required=True, metavar="run|show")
    run = commands.add_parser("run", help="audit a cluster", description="Audit a cluster.")
    run.add_argument(
        "--nameserver", required=True, metavar="HOST:PORT", help="a nameserver of the cluster, or several, separated by commas"
    )
    run.add_argument("--broker", help="one broker group; default: all")
    run.add_argument("--forget", action="append", default=[], metavar="BROKER", help="a group that is gone for good; may be repeated")
    run.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder of audit.html and audit.json (default %(default)s)")
    run.add_argument("--master", default="local[*]", help="Spark master, where spark-submit gave none (default %(default)s)")
    run.add_argument("--pause", type=float, default=1.0, metavar="SECONDS", help="wait before a second look (default %(default)s)")
    run.add_argument("--ca-file", default="", metavar="PEM", help="certificate authority of the nodes; without it in plain text")
    run.add_argument("--certificate-file", default="", metavar="PEM", help="certificate to show; every executor has all three files")
    run.add_argument("--key-file", default="", metavar="PEM", help="its key")
    run.add_argument("--token-file", default="", metavar="FILE", help="token that says who the audit is; every executor has the file")
    run.add_argument("--show-bytes", action="store_true", help="put payload bytes around a difference into the report")
    run.set_defaults(command=_run)
    show = commands.add_parser("show", help="print an earlier audit", description="Print an earlier audit.")
    show.add_argument("run", metavar="RUN", nargs="?", default="last", help="name of the run (default: the last one)")
    show.set_defaults(command=_show)
    for command in (run, show):
        command.add_argument("--history", type=Path, default=DEFAULT_HISTORY, help="folder of earlier runs (default %(default)s)")
        command.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
