"""What is written down is true of the tree, and names no machine and no person."""

import re
from pathlib import Path

import pytest

from tests.support.tree import ROOT, files

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
_ELSEWHERE = ("http://", "https://", "mailto:")

# Where this tree happens to lie or was fetched from, and who wrote it: none of it belongs into a file.
_FOREIGN = {
    "a path of one machine": re.compile(r"/work/|/root/|/tmp/v/|/opt/wheels|\.pyenv|/home/(?!mq\b)\w"),
    "a package index": re.compile(r"pypi\.org|pythonhosted|proxy\.golang|npmjs|maven\.org|deb\.debian|(?<!emit-)index-url"),
    "a mail address": re.compile(r"[\w.+-]+@(?!example\.)[A-Za-z][\w-]*\.(?:com|org|net|io|dev|de)\b"),
}


@pytest.mark.parametrize("path", files(".md"), ids=str)
def test_every_link_leads_somewhere(path: Path) -> None:
    links = _LINK.findall(_prose(path))

    assert [link for link in links if not link.startswith(_ELSEWHERE) and not _leads_somewhere(path, link)] == []


@pytest.mark.parametrize("kind", _FOREIGN)
def test_no_file_names(kind: str) -> None:
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path in files()
        if path.name != Path(__file__).name
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if _FOREIGN[kind].search(line)
    ]

    assert found == []


def _leads_somewhere(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    if not (ROOT / target).exists():
        return False
    if not anchor or target.suffix != ".md":
        return True
    headings = _HEADING.findall(_FENCE.sub("", (ROOT / target).read_text(encoding="utf-8")))
    return anchor in map(_anchor, headings)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _prose(path: Path) -> str:
    return _INLINE_CODE.sub("", _FENCE.sub("", (ROOT / path).read_text(encoding="utf-8")))
