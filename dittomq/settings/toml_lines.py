"""On which line of a TOML file a key stands; tomllib does not tell."""

import re

_HEADER = re.compile(r"^\s*\[\s*(?P<table>[^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""^\s*(?P<key>[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(\s*\.\s*(?P<inner>[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))?\s*=""")


def key_lines(text: str) -> dict[tuple[str, str], int]:
    """(table, key) → line, counted from 1; (table, "") is the table's own. What is written in unusual ways is left out.

    Text inside a multi-line string may look like a key: the first line wins, and nothing but a message depends on it.
    """
    lines: dict[tuple[str, str], int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        key = _KEY.match(line)
        if header:
            table = _bare(header["table"])
            lines.setdefault((table, ""), number)
        elif key and table:
            lines.setdefault((table, _bare(key["key"])), number)
        elif key:
            lines.setdefault((_bare(key["key"]), _bare(key["inner"] or "")), number)
            lines.setdefault((_bare(key["key"]), ""), number)
    return lines


def _bare(name: str) -> str:
    return name.strip("\"'")
