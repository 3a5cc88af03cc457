"""docs/store-format.md: its bytes are what the code writes, and it leaves out no file of ours."""

import random
import re

import pytest

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.queues.key_format import KeyMark, KeySizes
from dittomq.commitlog.queues.key_index import Keyed, KeyIndex
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import UNIT, Host, mark
from dittomq.commitlog.state.identity import FORMAT
from dittomq.message import Draft
from dittomq.properties import tags_code
from tests.support.stores import Machine
from tests.support.tree import ROOT

PAGE = (ROOT / "docs/store-format.md").read_text(encoding="utf-8")
STORED_MS = 1_795_224_456_773
PROPERTIES = b"KEYS\x01o-17\x02TAGS\x01new\x02"
MESSAGE = Draft("orders", 3, 7, 1_795_224_456_000, b"paid", PROPERTIES, tags_code("new"))
POSITION = 1_048_576
RECORD = encode_draft(MESSAGE, 41, POSITION, STORED_MS, host=Host(bytes((10, 0, 0, 7)), 10_911))


def key_index() -> bytes:
    """The file of an index with three slots and room for three entries, after that record."""
    machine = Machine(random.Random(1))
    storage = machine.storage()
    storage.make_folder("dittomq")
    index = KeyIndex(storage, OpenFiles(storage, 4), KeyMark(KeySizes(slots=3, entries=3)), None)
    index.add([Keyed(MESSAGE.topic, POSITION, STORED_MS, PROPERTIES)])
    index.write()
    inode = machine.disk.names.files["index/20261121012736773"]
    return inode.read(inode.size, 0)


EXAMPLES = {
    "record": RECORD,
    "mark": mark(4_096),
    "unit": UNIT.pack(POSITION, len(RECORD), MESSAGE.tags_code),
    "blank unit": UNIT.pack(0, 0x7FFFFFFF, 0),
    "key index": key_index(),
    "side file": state_file.seal(b"IDEN", b'{"format": 5, "generation": 0, "written_by": "0.2.0"}', FORMAT),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_bytes_on_the_page_are_those_that_the_code_writes(name: str) -> None:
    assert shown(name) == EXAMPLES[name].hex(" ")


def test_every_file_in_our_folder_has_its_row() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for folder in ("dittomq", "services") for path in (ROOT / folder).rglob("*.py"))
    sealed = set(re.findall(r'^_\w*KIND(?:: Final)? = b"(\w{4})"$', sources, re.MULTILINE))
    unsealed = set(re.findall(r'^PATH = "dittomq/([\w-]+)"$', sources, re.MULTILINE))

    assert set(re.findall(r"^\| `[^`]*` \| `(\w{4})` \|", PAGE, re.MULTILINE)) == sealed
    assert unsealed <= set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE))


def test_every_format_that_this_version_understands_has_its_row() -> None:
    assert re.findall(r"^\| (\d+) \| \d+\.\d+\.\d+ \|", PAGE, re.MULTILINE) == [str(number) for number in range(1, FORMAT + 1)]


def shown(name: str) -> str:
    """The bytes of an example: the hexadecimal pairs that begin its lines."""
    found = re.search(rf"^```hex {name}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no example called {name}"
    return " ".join(re.match(r"((?:[0-9a-f]{2} ?)*)", line)[1].strip() for line in found[1].splitlines())  # type: ignore[index]
