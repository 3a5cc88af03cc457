"""Digest files as `log digest` writes them and `audit compare` reads them."""

from dataclasses import asdict
from pathlib import Path

from dittomq.commitlog.offline.compare import Comparison
from dittomq.commitlog.offline.digest_codec import from_bytes, to_bytes
from dittomq.commitlog.offline.store_digest import Range, StoreDigest
from dittomq.errors import ConfigError


def read_digest(path: Path) -> StoreDigest:
    """Read one; ConfigError or InvalidDigestFile where it is none."""
    try:
        return from_bytes(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error


def digest_place(output: Path, store: Path) -> Path:
    """Where a digest of the store goes that is to be found at `output`, links followed; ConfigError where none may be put.

    It takes the place of a file only: renamed over a device, as root may do, it would take that away from everybody. RocketMQ refuses
    a store with a foreign file in it.
    """
    try:
        place, inside = output.resolve(), store.resolve()
        if place.exists() and not place.is_file():
            raise ConfigError(str(output), "is no file; name one that may be replaced")
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise ConfigError(str(output), f"cannot be written: {error.strerror if isinstance(error, OSError) else error}") from error
    if inside in place.parents:
        raise ConfigError(str(output), "lies in the store, in which nothing is written; name a place outside it")
    return place


def write_digest(path: Path, digest: StoreDigest) -> None:
    """Write one beside its final name and rename it: half a file is never found."""
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_bytes(to_bytes(digest))
        draft.replace(path)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written: {error.strerror}") from error


def digest_line(digest: StoreDigest, name: str) -> str:
    """What was digested, and what was left out on purpose."""
    what = f"{digest.kind} store, {name}, {len(digest.segments)} segments"
    unread = sum(bool(each.unreadable) for each in digest.segments)
    what += f" of which {unread:,} could not be read" if unread else ""
    what += f", whole records up to {digest.readable_end:,}"
    return f"{what} · ignored on purpose: index files, bytes after end-of-file marks and after the last whole record"


def comparison_lines(comparison: Comparison) -> list[str]:
    """The comparison for people: the verdict and what to run next, then each difference and what was left out."""
    command = comparison.next_command
    lines = [comparison.headline + (f" · next, on both hosts: {command}" if command else "")]
    lines += [f"  differs   bytes {piece.start:,} to {piece.end:,}" for piece in comparison.differing if not comparison.records]
    for record in comparison.records:
        name = record.name
        keys = f" key {' '.join(name.keys)}" if name.keys else ""
        lines.append(
            f"  differs   byte {name.start:,}: {name.topic} queue {name.queue} offset {name.queue_offset:,}{keys} · {record.blame}"
        )
    lines += [f"  problem   {problem}" for problem in comparison.problems]
    lines += [f"  normal    {note}" for note in comparison.normal]
    return lines


def comparison_document(comparison: Comparison) -> dict[str, object]:
    """The comparison for programs."""
    return {
        "outcome": comparison.outcome,
        "compared_bytes": comparison.compared_bytes,
        "differing": [_range(piece) for piece in comparison.differing],
        "records": [
            {
                "first": asdict(record.first) if record.first else None,
                "second": asdict(record.second) if record.second else None,
                "blame": record.blame,
            }
            for record in comparison.records
        ],
        "problems": list(comparison.problems),
        "normal": list(comparison.normal),
        "next_command": comparison.next_command or None,
    }


def _range(piece: Range) -> dict[str, int]:
    return {"start_offset": piece.start, "end_offset": piece.end}
