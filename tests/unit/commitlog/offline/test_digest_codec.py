"""Digest files that somebody made by hand: their checksum is right, and any field may be wrong."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dittomq.cli.app import run
from dittomq.cli.digests import comparison_document, comparison_lines
from dittomq.cli.exits import ExitCode
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.compare import Side, compare
from dittomq.commitlog.offline.digest_codec import from_bytes, to_bytes
from dittomq.commitlog.offline.store_digest import InvalidDigestFile, Range, digest_store
from dittomq.errors import InvalidField, StoreOpenFailed
from tests.support.synthetic_log import SyntheticLog
from tests.unit.commitlog.offline.digest_files import SEGMENT, written

Body = dict[str, Any]
HUGE = 1 << 70


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> list[Body]:
    """What a store's digest files hold: one of all of it, with damage, and one of a range."""
    log = SyntheticLog(SEGMENT).fill(random.Random(3), 2_500)
    for number in (100, 200, 1_500):
        record = log.records[number]
        log.data[record.start : record.end] = b"\xee" * (record.end - record.start)
    store = OsStorage(written(log.data, tmp_path_factory.mktemp("digests") / "a"))
    asked = Range(log.records[300].start, log.records[310].end)
    found = [json.loads(to_bytes(digest_store(store, "a", each))) for each in (None, asked)]
    for body in found:
        del body["check"]
    assert len(found[0]["damaged"]) == 3
    assert len(found[0]["segments"]) == 3
    assert len(found[1]["records"]) == 11
    return found


def sealed(body: object) -> bytes:
    if not isinstance(body, dict):
        return json.dumps(body).encode()
    check = xxhash.xxh3_128_hexdigest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
    return json.dumps({**body, "check": check}).encode()


def refusal(body: object) -> str:
    with pytest.raises(InvalidDigestFile) as refused:
        from_bytes(sealed(body), "hand.dmd")
    return str(refused.value)


def put(*path: str | int, value: object) -> Callable[[Body], None]:
    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = value

    return change


WHOLE = [
    ("kind", put("kind", value="a store")),
    ("segment_bytes", put("segment_bytes", value=0)),
    ("segment_bytes", put("segment_bytes", value=True)),
    ("low", put("low", value=-SEGMENT)),
    ("low", put("low", value=1)),
    ("end", put("end", value=1.5)),
    ("end", put("end", value=HUGE)),
    ("leaf_bytes", put("leaf_bytes", value=4_096)),
    ("asked", put("asked", value=[5])),
    ("asked", put("asked", value=[5, 5])),
    ("asked", put("asked", value=[0, 65 << 20])),
    ("segments", put("segments", value={})),
    ("segments[1]", put("segments", 1, value=[1, 2])),
    ("segments[0]", put("segments", 0, 0, value=8)),
    ("segments[1]", put("segments", 1, 0, value=0)),
    ("segments[1]", put("segments", 1, 1, value=SEGMENT)),
    ("segments[1]", put("segments", 1, 1, value=3 * SEGMENT)),
    ("segments[0]", put("segments", 0, 2, value=1)),
    ("segments[0]", put("segments", 0, 3, value="AAAA")),
    ("segments[0]", put("segments", 0, 3, value="")),
    ("segments[0]", put("segments", 0, 3, value="not base 64")),
    ("segments[0]", put("segments", 0, 4, value="Input/output error")),
    ("segments[2]", put("segments", 2, 1, value=3 * SEGMENT)),
    ("damaged[1]", put("damaged", 1, value=[9, 3])),
    ("damaged[1]", put("damaged", 1, value=[0, 1])),
    ("damaged[2]", put("damaged", 2, value=[3 * SEGMENT, 3 * SEGMENT + 1])),
    ("damaged_left_out", put("damaged_left_out", value="1")),
    ("records[0]", put("records", value=[[0, 9, "t", 0, 0, [], 0, "0" * 32, ""]])),
]
PART = [
    ("leaf_bytes", put("asked", value=None)),
    ("segments[0]", put("segments", 0, 0, value=0)),
    ("records[3]", put("records", 3, 0, value=0)),
    ("records[3]", put("records", 3, 1, value=0)),
    ("records[3]", put("records", 3, 2, value="\ud800")),
    ("records[3]", put("records", 3, 3, value=1 << 31)),
    ("records[3]", put("records", 3, 4, value=None)),
    ("records[3]", put("records", 3, 5, value="key")),
    ("records[3]", put("records", 3, 5, value=[1])),
    ("records[3]", put("records", 3, 6, value="yesterday")),
    ("records[3]", put("records", 3, 7, value="abc")),
    ("records[3]", put("records", 3, 8, value=False)),
]


CASES = [*((0, *each) for each in WHOLE), *((1, *each) for each in PART)]


@pytest.mark.parametrize(("which", "field", "change"), CASES, ids=[field for _, field, _ in CASES])
def test_a_wrong_field_is_refused_by_its_name(bodies: list[Body], which: int, field: str, change: Callable[[Body], None]) -> None:
    body = copy.deepcopy(bodies[which])
    change(body)

    told = refusal(body)

    assert f'"{field}"' in told
    assert told.startswith("hand.dmd is no digest file: ")
    assert "\n" not in told


def test_a_missing_field_is_named_but_for_the_one_that_old_files_have_not(bodies: list[Body]) -> None:
    for field in bodies[0].keys() - {"damaged_left_out"}:
        assert f'"{field}" is missing' in refusal({each: value for each, value in bodies[0].items() if each != field})


def test_places_that_are_only_counted_have_some_before_them_that_are_named(bodies: list[Body]) -> None:
    assert '"damaged_left_out" is 4' in refusal({**bodies[0], "damaged": [], "damaged_left_out": 4})


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b"1" * 10_000, b"[]", b"7", b"{}", b'{"check": 1}', b'{"check": 1, "dittomq_digest": true}']
)
def test_what_is_no_such_document_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidDigestFile):
        from_bytes(data, "hand.dmd")


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where anything lies in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in inner for found in [(*path, key), *places(each, (*path, key))]]


NUMBERS = st.sampled_from([-1, 0, 1, 2, 4_096, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT, (1 << 63) - 1, 1 << 63, HUGE, 0.5, True])
ANY = st.recursive(
    st.none() | NUMBERS | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
)


def change(body: Body, data: st.DataObject) -> None:
    path = list(data.draw(st.sampled_from(places(body)), "where"))
    last: Any = path.pop()
    holder: Any = body
    for step in path:
        holder = holder[step]
    match data.draw(st.sampled_from(["other", "near", "gone", "twice", "swapped"]), "how"):
        case "near" if isinstance(holder[last], int):
            holder[last] += data.draw(st.sampled_from([-SEGMENT, -1, 1, SEGMENT]), "by")
        case "gone":
            del holder[last]
        case "twice" if isinstance(holder, list):
            holder.insert(last, copy.deepcopy(holder[last]))
        case "swapped" if isinstance(holder, list):
            holder[last], holder[0] = holder[0], holder[last]
        case _:
            holder[last] = data.draw(ANY, "what")


@pytest.mark.tier("test")
@settings(max_examples=400)
@given(data=st.data())
def test_whatever_was_changed_by_hand_is_refused_in_a_sentence_or_can_be_compared(bodies: list[Body], data: st.DataObject) -> None:
    original = data.draw(st.sampled_from(bodies), "file")
    body = copy.deepcopy(original)
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        change(body, data)

    try:
        sides = [Side("hand.dmd", from_bytes(sealed(body), "hand.dmd")), Side("real.dmd", from_bytes(sealed(original), "real.dmd"))]
        compared = [compare(*sides), compare(*reversed(sides)), compare(sides[0], sides[0])]
    except (InvalidDigestFile, InvalidField) as refused:
        told = [str(refused)]
    else:
        told = ["hand.dmd"]
        for each in compared:
            told += [*comparison_lines(each), json.dumps(comparison_document(each), ensure_ascii=False)]

    assert "hand.dmd" in told[0]
    assert "".join(told).encode()


def test_the_command_says_so_in_one_line(
    bodies: list[Body], tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = (tmp_path_factory.mktemp("files") / f"{name}.dmd" for name in ("good", "bad"))
    good.write_bytes(sealed(bodies[0]))
    bad.write_bytes(sealed({**bodies[0], "damaged": [], "damaged_left_out": 4}))

    code = run(["audit", "compare", str(good), str(bad)])

    told = capsys.readouterr()
    assert (code, told.out, told.err.count("\n")) == (ExitCode.USAGE, "", 1)
    assert "bad.dmd" in told.err
    assert '"damaged_left_out"' in told.err


def test_a_store_whose_segments_begin_elsewhere_is_refused_as_its_digests_would_be(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = written(b"x", tmp_path_factory.mktemp("stores") / "a")
    for at, path in enumerate(sorted((folder / "commitlog").iterdir())):
        path.rename(path.with_name(f"{at * SEGMENT + 8:020d}"))

    with pytest.raises(StoreOpenFailed, match="00008 does not begin at a multiple of its size"):
        digest_store(OsStorage(folder), "a")
