"""`dittomq log dump|verify|stats|digest` on stores of running RocketMQ brokers, against RocketMQ's own reading of every record."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import xxhash

from dittomq.cli.app import run
from tests.support.sequence_difference import first_difference
from tests.vectors.conftest import Line, Vector
from tests.vectors.log_dump import dump, in_rocketmqs_words, normal

pytestmark = pytest.mark.tier("nightly")

MARK_BYTES = 8


def test_dump_shows_every_field_of_every_record_as_rocketmq_decodes_it(vector: Vector, capsys: pytest.CaptureFixture[str]) -> None:
    dumped = dump(vector.folder, capsys)
    records = [in_rocketmqs_words(line) for line in dumped if line["sort"] == "record" and line["problem"] is None]
    whole = [normal(line) for line in vector.records if "topic" in line and not is_torn(vector, line)]
    assert first_difference(records, whole) == ""
    assert [line["start_offset"] for line in dumped if line["sort"] == "mark"] == [
        line["position"] for line in vector.records if "blank" in line
    ]
    assert [line["start_offset"] for line in dumped if line["problem"]] == ([] if vector.torn is None else [vector.torn])


def test_verify_counts_what_rocketmq_counts_and_finds_only_the_torn_record(vector: Vector, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["log", "verify", str(vector.folder), "--json"])

    report = json.loads(capsys.readouterr().out)
    expected = [line for line in vector.records if "topic" in line and not is_torn(vector, line)]
    damaged = vector.name == "diverged-5.3.3/slave"
    assert (code, report["whole"]) == ((3, False) if damaged else (0, True))
    assert report["records"] == len(expected)
    assert report["body_bytes"] == sum(line["storedBodyLength"] for line in expected)
    assert report["end_offset"] == end_of(expected[-1])
    assert {finding["position"] for finding in report["findings"] if finding["kind"] in {"damaged", "torn end"}} == (
        set() if vector.torn is None else {vector.torn}
    )


def test_stats_counts_every_queue_as_rocketmq_decodes_it(vector: Vector, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["log", "stats", str(vector.folder), "--json"])

    found = json.loads(capsys.readouterr().out)
    expected: dict[tuple[str, int], list[Line]] = {}
    for line in vector.records:
        if "topic" in line and not is_torn(vector, line):
            expected.setdefault((line["topic"], line["queueId"]), []).append(line)
    queues = {(topic["topic"], queue.pop("queue")): queue for topic in found["topics"] for queue in topic["queues"]}
    assert queues == {key: counted(lines) for key, lines in expected.items()}
    assert found["records"] == found["verified"]["records"] == sum(map(len, expected.values()))
    assert code == (0 if found["verified"]["whole"] else 3)


def test_digest_covers_exactly_the_bytes_up_to_the_marks_and_the_last_whole_record(vector: Vector, tmp_path: Path) -> None:
    assert run(["log", "digest", str(vector.folder), "-o", str(tmp_path / "digest")]) == 0

    found = json.loads((tmp_path / "digest").read_text())
    assert [[start, end, leaves] for start, end, _, leaves, _ in found["segments"]] == expected_segments(vector)
    assert found["end"] == expected_segments(vector)[-1][1]


def counted(lines: list[Line]) -> Line:
    times = [line["storeTimestamp"] for line in lines]
    return {
        "first_offset": lines[0]["queueOffset"],
        "last_offset": lines[-1]["queueOffset"],
        "records": len(lines),
        "record_bytes": sum(line["totalSize"] for line in lines),
        "body_bytes": sum(line["storedBodyLength"] for line in lines),
        "oldest_store_ms": min(times),
        "newest_store_ms": max(times),
    }


def is_torn(vector: Vector, line: Line) -> bool:
    return bool(line["position"] == vector.torn)


def end_of(line: Line) -> int:
    return int(line["position"] + line["totalSize"])


def expected_segments(vector: Vector) -> list[list[Any]]:
    """Start, end and digest of every segment that holds something, from RocketMQ's lines and the raw files."""
    found = []
    for path in sorted((vector.folder / "commitlog").iterdir()):
        mine = [line for line in vector.records if line["file"] == path.name and "end" not in line]
        if mine and not is_torn(vector, mine[-1]):
            last = mine[-1]
        elif len(mine) > 1:
            last = mine[-2]
        else:
            continue
        end = last["position"] + MARK_BYTES if "blank" in last else end_of(last)
        start = int(path.name)
        digest = xxhash.xxh3_128_digest(path.read_bytes()[: end - start])
        found.append([start, end, base64.b64encode(digest).decode()])
    return found
