"""What broker groups answered, as lines or as a document, and the exit code of that."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from dittomq.cli.exits import ExitCode, exit_of
from dittomq.cli.output import hint, say, say_json
from dittomq.errors import DittoError, Unavailable

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import GroupResult

T = TypeVar("T")


def report(kind: str, name: str, results: "Sequence[GroupResult[T]]", words: dict[str, str], *, json: bool) -> int:
    """Print a line for each broker group; those in `words` did to the `kind` of that name what was asked. Returns the exit code."""
    failed = [result for result in results if result.broker not in words]
    if json:
        say_json({kind: name, "done": sorted(words), "failed": failures(failed)})
    else:
        for result in results:
            say(f"{result.broker}  {words.get(result.broker) or f'FAILED    {_reason(result.error)}'}")
    return _exit(failed, some_did=bool(words), quiet=not json)


def report_deleted(kind: str, name: str, results: "Sequence[GroupResult[None]]", missing: type[DittoError], *, json: bool) -> int:
    """The same for a deletion; `missing` is what a broker group answers that has nothing of that name.

    What was done before is done: run again until the last broker group is, the command ends with 0.
    """
    words = {result.broker: "deleted" for result in results if result.error is None}
    without = {result.broker: "was not there" for result in results if isinstance(result.error, missing)}
    if len(without) < len(results):
        words |= without
    return report(kind, name, results, words, json=json)


def failures(results: "Sequence[GroupResult[T]]") -> list[dict[str, str]]:
    """Of a document: the broker groups that failed, and why."""
    return [{"broker": result.broker, "error": str(result.error)} for result in results if result.error is not None]


def shown_exit(results: "Sequence[GroupResult[T]]") -> int:
    """The exit code of what was shown already; says why the other broker groups failed."""
    failed = [result for result in results if result.error is not None]
    return _exit(failed, some_did=len(failed) < len(results))


def _exit(failed: "Sequence[GroupResult[T]]", *, some_did: bool, quiet: bool = False) -> int:
    """0 when no group failed, 3 when only some did, otherwise what the errors mean: one that is silent may have done it, so it wins."""
    errors = [result.error for result in failed if result.error is not None]
    if not errors:
        return ExitCode.DONE
    if not quiet:
        for error in errors:
            hint(_reason(error))
    return ExitCode.PARTLY if some_did else max(map(exit_of, errors))


def _reason(error: DittoError | None) -> str:
    again = "; run the same command again when it does" if isinstance(error, Unavailable) else ""
    return f"{error}{again}"
