"""Names use the words of docs/glossary.md: its last column is looked for in every name of the product, and a class name stands once."""

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.tree import ROOT, files

_ROW = re.compile(r"^\| \*\*(?P<terms>[^*]+)\*\* \| (?P<definition>[^|]*) \|[^|]*\| (?P<never>[^|]*) \|$", re.MULTILINE)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PROTO_NAME = re.compile(r"^\s*(?:message|enum|rpc|service|oneof)\s+(\w+)|^\s*(?:[\w.<>, ]+?\s)?(\w+)\s*=\s*\d+;", re.MULTILINE)
_PRODUCT = ("dittomq", "services", "spark")
_TREE = (*_PRODUCT, "bench", "tools")
_FLAG, _METRIC = re.compile(r"--[a-z][a-z-]+"), re.compile(r"dittomq_[a-z_]+")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
_LEVELS = frozenset({"debug", "info", "warning", "error", "critical", "exception"})
_MOST_WORDS = 20

# Words of that column that say nothing else in plain English: documents do without them too.
_IN_NO_DOCUMENT = (
    *("lineage", "opener", "watermark", "lows", "leapt", "heir", "come to lead", "superseded", "outgrown", "hello", "outbox", "mend"),
    *("set in sync", "accept loss", "stood down", "follower", "shard", "not permitted"),
)

# Words that are plain English too: only names of this form stand for the glossary's thing. All others may have them.
_ONLY_AS = {
    "hold": r"_?holds?|\w*slave_holds?|hold_(?!for)\w+",  # what keeps segments; a checksum holds
    "note": r"note|note_\w+|_note_\w+",  # the verb; a report has notes
    "number": r"queue_numbers?|next_numbers?|numbers_(hidden|left)\w*",  # of a message in its queue; files and sequences have numbers
    "pause": r"_?(\w+_)?pauses?(_m?s)",  # the wait before a retry; automatic failover can be paused
    "place": r"places_?of|lost_places?|queue_place\w*",  # of a message in its queue
    "link": r"_?links?",  # to the master of a group; a hard link is one
}

# Names that have a word and stand for another thing.
_PERMITTED = {
    "_ONLY_WITH_LEADER": "etcd's leader",
    "_Filling": "the file of the key index that is being filled",
    "_filling": "the same",
    "filling": "the same",
    "_hole": "of the disk: pages of a sparse file without blocks",
    "is_hole": "the same",
    "Verdict": "of an audit",
    "_verdict": "the same",
    "verdict": "the same",
    "weaker": "of a receipt: a lower ack level than asked",
    "say": "of the command line: print a line of the result",
    "say_json": "the same",
    "_is_cut_off": "of a record that ends with its file",
    "is_cut_off": "of sequences that no broker takes any more",
    "cut_ms": "of an audit's report",
    "cut": "of an audit: where the comparison ends",
    "note": "of the demo: a line below a step",
    "holds": "of the demo: whether its promises were kept",
    "leapt": "a key of a file of the store, which keeps its name",
}


class _Row(NamedTuple):
    """One row of the glossary."""

    terms: str
    definition: str
    never: tuple[str, ...]


def _glossary() -> list[_Row]:
    rows = _ROW.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    return [_Row(terms, definition, tuple(re.findall(r"`([^`]+)`", never))) for terms, definition, never in rows]


_NEVER = [word for row in _glossary() for word in row.never]


def test_a_glossary_row_is_short_and_forbids_no_word_twice() -> None:
    rows = _glossary()

    assert len(rows) > 50
    assert [row.terms for row in rows if len(row.definition.split()) > _MOST_WORDS] == []
    assert sorted({word for word in _NEVER if _NEVER.count(word) > 1}) == []


def test_an_exception_is_for_a_word_that_is_forbidden_and_a_name_that_is_there() -> None:
    names = {name for _, name in _names()}

    assert sorted(set(_ONLY_AS) - set(_NEVER)) == []
    assert sorted(set(_PERMITTED) - names) == []


@pytest.mark.parametrize("word", _NEVER)
def test_no_name_has_a_word_that_the_glossary_replaces(word: str) -> None:
    assert [f"{path}: {name}" for path, name in _names() if name not in _PERMITTED and _says(name, word)] == []


@pytest.mark.parametrize("word", _IN_NO_DOCUMENT)
def test_no_document_has_a_word_that_the_glossary_replaces(word: str) -> None:
    forms = "".join(rf"\W+{each}(?:s|ed|d|ing)?" for each in word.split())

    assert word in _NEVER
    assert [str(path) for path in files(".md") if re.search(rf"{forms}\b", _prose(path))] == []


def test_a_class_name_stands_once_in_the_tree() -> None:
    where = defaultdict(list)
    for path in _sources(_TREE):
        for name in _classes(path):
            where[name.lstrip("_")].append(str(path))

    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


@functools.cache
def _prose(path: Path) -> str:
    """What the page says of today, in small letters: a decision, and what changed, may name what was."""
    if path.parts[:2] == ("docs", "adr") or path.parts[0] == "tests" or path.name in {"CHANGELOG.md", "glossary.md"}:
        return ""
    return _CODE.sub("", (ROOT / path).read_text(encoding="utf-8")).lower()


def _says(name: str, word: str) -> bool:
    """Whether the word, or the words, stand in the name: in any form of a verb, or only as `_ONLY_AS` says."""
    words = [each.lower() for each in _WORD.findall(name)]
    if word in _ONLY_AS:
        return re.fullmatch(_ONLY_AS[word], "_".join(words)) is not None
    wanted = word.split()
    return any(all(map(_is_form, words[at:], wanted)) for at in range(len(words) - len(wanted) + 1))


def _is_form(found: str, word: str) -> bool:
    return found in {word, f"{word}s", f"{word}ed", f"{word}d", f"{word}ing", f"{word.removesuffix('e')}ing", f"{word}{word[-1]}ing"}


@functools.cache
def _names() -> list[tuple[str, str]]:
    """Each name of the product, with its file: what Python defines, flags, metrics, log events, and names of the protocol."""
    found = {(str(path), name) for path in _sources(_PRODUCT) for name in (path.stem, *_defined(path))}
    for path in files(".proto"):
        for names in _PROTO_NAME.findall((ROOT / path).read_text(encoding="utf-8")):
            found |= {(str(path), name) for name in names if name}
    return sorted(found)


def _defined(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Constant(value=str() as text) if _FLAG.fullmatch(text) or _METRIC.fullmatch(text):
                yield text
            case ast.Call(func=ast.Attribute(attr=level), args=[ast.Constant(value=str() as event), *_]) if level in _LEVELS:
                yield event


def _sources(folders: tuple[str, ...]) -> Iterator[Path]:
    return (path for path in files(".py") if path.parts[0] in folders and "_pb" not in path.parts)


def _classes(path: Path) -> Iterator[str]:
    return (node.name for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))
