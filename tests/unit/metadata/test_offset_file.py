"""consumerOffset.json is read quickly, and taken or refused as the plainest reading does it."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dittomq.metadata import fastjson
from dittomq.metadata.formats import CONSUMER_OFFSETS, decode
from dittomq.metadata.offset_file import decode_offsets
from dittomq.metadata.offset_table import OffsetTable
from tests.support import plain_reading
from tests.support.replayable_chance import replayable

FILES = 1_500
KEYS = ("orders@billing", "%RETRY%g@g", "a@b@c", "a@", "@", "a", 'q\\"@x', "\\u0041@b", "\\ud83d@b", "0")
NUMBERS = (
    "0",
    "7",
    "-1",
    "007",
    "-0",
    "1.5",
    "1e3",
    "9" * 10,
    "9" * 20,
    str(2**63 - 1),
    str(-(2**63)),
    '"12"',
    '"x"',
    "true",
    "null",
    "{}",
)
QUEUES = ("0", "1", "-1", "01", "12", '"3"', "x", "--5", "-", "٣", str(2**31), str(2**31 - 1), '"x"', "0x1")
SPACES = ("", "", "", " ", "\n\t", "\r")
PIECES = ("{", "}", "[", "]", ",", ":", '"', "\\", "0", "7", "-", "a", "@", " ", "\n", "\x00", "{0:1}", "{0:1,1:2}", "é", "NaN", "true")


def some(chance: random.Random, likely: Sequence[str], others: Sequence[str]) -> str:
    return chance.choice(likely) if chance.random() < 0.95 else chance.choice(others)


def object_text(chance: random.Random, entries: Sequence[tuple[str, str]]) -> str:
    space = chance.choice(SPACES)
    return "{" + f",{space}".join(f"{space}{key}{chance.choice(SPACES)}:{value}" for key, value in entries) + space + "}"


def queues_text(chance: random.Random) -> str:
    queues = chance.sample(range(30), chance.randrange(5))
    return object_text(chance, [(some(chance, [str(queue)], QUEUES), some(chance, [str(queue * 9)], NUMBERS)) for queue in queues])


def file_text(chance: random.Random) -> str:
    """A file as brokers write it, but for a few oddities, and in one of two some pieces of it lost, doubled or put in."""
    keys = [f'"{some(chance, [f"topic-{number}@group"], KEYS)}"' for number in range(chance.randrange(5))]
    fields = [
        ('"offsetTable"', object_text(chance, [(key, queues_text(chance)) for key in keys])),
        ('"dataVersion"', object_text(chance, [('"counter"', some(chance, ["7"], NUMBERS)), ('"stateVersion"', "1")])),
        ('"dittomqIncarnations"', object_text(chance, [(key, some(chance, ["12345"], NUMBERS)) for key in keys])),
        ('"dittomqResets"', object_text(chance, [(key, queues_text(chance)) for key in keys[:2]])),
        (some(chance, ['"another"', "12", "word"], KEYS), some(chance, ['["a",{3:4}]'], NUMBERS)),
        ('"dittomqQueueMinimums"', object_text(chance, [('"topic"', queues_text(chance))])),
    ]
    text = object_text(chance, chance.sample(fields, chance.randrange(1, len(fields) + 1)))
    if chance.random() < 0.5:
        return text
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(("", *PIECES)) + text[at + chance.randrange(3) :]
    return text


def outcome(read: Callable[[str], Any], text: str) -> Any:
    """What is read, with the types of all parts, as 1 and 1.0 are equal; or that it is refused."""
    try:
        return repr(read(text))
    except ValueError:
        return "refused"


@pytest.mark.parametrize(
    ("quick", "plain"),
    [
        (fastjson.loads, plain_reading.fastjson_value),
        (lambda text: decode_offsets(text.encode()), plain_reading.offsets_of),
    ],
    ids=["its JSON", "its offsets"],
)
def test_any_file_is_taken_or_refused_as_by_the_plainest_reading(quick: Callable[[str], Any], plain: Callable[[str], Any]) -> None:
    chance, refused = replayable(), 0

    for _ in range(FILES):
        text = file_text(chance)
        expected = outcome(plain, text)
        assert outcome(quick, text) == expected, text
        refused += expected == "refused"

    assert FILES // 10 < refused < FILES * 9 // 10, "both happen often enough for a comparison"


def test_rows_of_a_file_are_its_offsets_by_name() -> None:
    chance, read = replayable(), 0

    for _ in range(FILES // 3):
        data = file_text(chance).encode()
        try:
            rows = list(decode(CONSUMER_OFFSETS, data).rows.values())
        except ValueError:
            continue
        table = OffsetTable()
        table.load(decode_offsets(data).by_name, table.version)
        assert list(table.rows()) == rows
        read += 1

    assert read > FILES // 30
