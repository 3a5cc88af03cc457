"""Paths into JSON records, as jq writes them: `.customer`, `.order.id`, `.items[0].sku`."""

import json
import re
from dataclasses import dataclass

import typer

from dittomq.errors import InvalidField

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,18})\]")


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A checked path."""

    text: str
    steps: tuple[str | int, ...]

    def find(self, document: object) -> str:
        """The value there as text; InvalidField where it is absent or is no string or number."""
        value = document
        for step in self.steps:
            if isinstance(step, str) and isinstance(value, dict):
                value = value.get(step)
            elif isinstance(step, int) and isinstance(value, list):
                value = value[step] if step < len(value) else None
            else:
                value = None
        if isinstance(value, str):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return json.dumps(value)
        raise InvalidField(self.text, "the record has no string or number there")


def parse_path(text: str) -> JsonPath:
    """The path that a person typed."""
    steps: list[str | int] = []
    position = 0
    while match := _STEP.match(text, position):
        steps.append(match[1] if match[1] is not None else int(match[2]))
        position = match.end()
    if not steps or position < len(text):
        raise typer.BadParameter(f'"{text}" is not a JSON path; write for example .customer or .items[0].id')
    return JsonPath(text, tuple(steps))
