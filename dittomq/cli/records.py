"""Records, one a line, as messages. Bytes stay as they are."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import typer

from dittomq.errors import InvalidField, MessageTooLarge
from dittomq.message import MAX_BODY_BYTES, Message

_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,18})\]")


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A checked path into JSON records, as jq writes it: `.customer`, `.order.id`, `.items[0].sku`."""

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


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a line becomes: its topic, and where in the line its keys are found; None: without."""

    topic: str
    order_key: JsonPath | None = None
    keys: JsonPath | None = None
    delay_ms: int = 0
    deliver_ms: int = 0


class LineSplitter:
    """Cuts bytes, as they come, into lines, and makes each a message without its newline.

    A line that cannot be a message raises a Refused error that names it; the lines before it have been given out.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._rest = b""
        self._number = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages of all lines that end in `data`."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield self._message(line)
        self._check(self._rest, self._number + 1)

    def finish(self) -> Iterator[Message]:
        """The message of a last line that no newline ends."""
        if self._rest:
            yield self._message(self._rest)

    def _message(self, body: bytes) -> Message:
        self._number += 1
        self._check(body, self._number)
        recipe = self._recipe
        if recipe.order_key is None and recipe.keys is None:
            return Message(recipe.topic, body, delay_ms=recipe.delay_ms, deliver_ms=recipe.deliver_ms)
        document = self._json(body)
        try:
            order_key = recipe.order_key.find(document) if recipe.order_key else ""
            keys = (recipe.keys.find(document),) if recipe.keys else ()
        except InvalidField as error:
            raise InvalidField(f"line {self._number:,}, {error.field}", error.problem) from error
        return Message(recipe.topic, body, keys=keys, order_key=order_key, delay_ms=recipe.delay_ms, deliver_ms=recipe.deliver_ms)

    def _json(self, body: bytes) -> object:
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            problem = "is not JSON, and --order-key and --keys look into JSON; nothing from this line on is sent"
            raise InvalidField(f"line {self._number:,}", problem) from error

    @staticmethod
    def _check(body: bytes, number: int) -> None:
        if len(body) > MAX_BODY_BYTES:
            raise MessageTooLarge(f"line {number:,}, as far as it was read,", len(body), MAX_BODY_BYTES)
