"""Tag expressions: "a || b", or "*" for all. A broker filters by hash, which lets other tags of the same hash pass; a client exactly."""

from dataclasses import dataclass

from dittomq.errors import InvalidField
from dittomq.reads import MAX_PULL_TAG_CHARACTERS, MAX_PULL_TAGS

ALL_TAGS = "*"
_SEPARATOR = "||"


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags wanted; none: all messages."""

    tags: frozenset[str] = frozenset()

    def matches(self, tag: str) -> bool:
        """Whether a message with this tag, "" for none, is wanted."""
        return not self.tags or tag in self.tags

    @property
    def expression(self) -> str:
        """The same for equal filters; "*" for all."""
        return f" {_SEPARATOR} ".join(sorted(self.tags)) or ALL_TAGS


def parse_tags(expression: str) -> TagFilter:
    """What the expression wants; "" and "*" want all. Raises InvalidField for one that names no tag where one must stand."""
    text = expression.strip()
    if not text or text == ALL_TAGS:
        return TagFilter()
    count = text.count(_SEPARATOR) + 1
    if len(text) > MAX_PULL_TAG_CHARACTERS or count > MAX_PULL_TAGS:
        raise InvalidField("tag", f"has {count:,} tags in {len(text):,} characters; at most {MAX_PULL_TAGS} in {MAX_PULL_TAG_CHARACTERS:,}")
    tags = [tag.strip() for tag in text.split(_SEPARATOR)]
    for tag in tags:
        if not tag:
            raise InvalidField("tag", f'"{_shown(text)}" lacks a tag beside ||; write "a || b", or * for all')
        if "|" in tag or tag == ALL_TAGS:
            raise InvalidField("tag", f'"{_shown(text)}" has "{_shown(tag)}" for a tag; write "a || b", or * alone for all')
    return TagFilter(frozenset(tags))


def _shown(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
