"""A store that RocketMQ wrote from its first byte on, read and opened here."""

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dittomq.cli.app import run
from dittomq.errors import UnreadableStore
from tests.interop.peer import RETRY
from tests.interop.seen import Seen
from tests.interop.visits import TOPICS, VISITS, Visited, pay
from tests.interop.written import copy, open_store, read_all
from tests.support.differing import first_difference

COMPRESSED = 0x1


@pytest.fixture(scope="module", params=VISITS)
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visited:
    folder = tmp_path_factory.mktemp("theirs") / "store"
    folder.mkdir()
    return pay(VISITS[request.param], folder)


def test_log_dump_shows_every_message_as_the_java_client_reads_it(theirs: Visited, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(theirs.folder), "--json"]) == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first_difference(dumped(lines), theirs.messages) == ""
    assert lines[-1]["end_offset"] == theirs.end


def test_log_verify_proves_it_whole(theirs: Visited, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(theirs.folder), "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert (report["whole"], report["end_offset"], report["counts"]) == (True, theirs.end, {})


@pytest.mark.xfail(reason="a store that dittomq never wrote is read by `dittomq log` only", raises=UnreadableStore)
def test_it_is_opened_and_every_message_is_read(theirs: Visited, tmp_path: Path) -> None:
    store = open_store(copy(theirs.folder, tmp_path / "store"))

    found = read_all(store)
    store.close(clean=True)

    assert first_difference([each for each in found if each.topic in {*TOPICS, RETRY}], theirs.messages) == ""


def dumped(lines: list[dict[str, Any]]) -> Iterator[Seen]:
    """What `log dump --json` printed of the topics that the Java client read."""
    for line in lines:
        if line["sort"] != "record" or line["topic"] not in {*TOPICS, RETRY}:
            continue
        body = base64.b64decode(line["body"])
        yield Seen.pulled(
            {
                "position": line["start_offset"],
                "size": line["end_offset"] - line["start_offset"],
                "topic": line["topic"],
                "queue": line["queue"],
                "queueOffset": line["queue_offset"],
                "storeMs": line["store_ms"],
                "bornMs": line["born_ms"],
                "flag": line["flag"],
                "body": zlib.decompress(body) if line["system_flag"] & COMPRESSED else body,
                "tag": line["properties"].get("TAGS"),
                "keys": line["properties"].get("KEYS"),
                "properties": line["properties"],
            }
        )
