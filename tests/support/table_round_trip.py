"""Tables that are read and written again."""

from typing import Any

from dittomq.metadata import fastjson
from dittomq.metadata.formats import TableKind, decode, encode


def assert_keeps(old: Any, new: Any, where: str = "") -> None:
    """Everything in `old` is in `new` with the same value; `new` may have defaults besides."""
    if not isinstance(old, dict):
        assert new == old, where
        return
    for key, value in old.items():
        if value != {}:  # a topic and group without a queue has no row
            assert_keeps(value, new[key], f"{where}.{key}")


def assert_read_and_written(kind: TableKind[Any], data: bytes) -> None:
    table = decode(kind, data)
    written = encode(kind, table)

    assert decode(kind, written) == table
    assert_keeps(fastjson.loads(data.decode()), fastjson.loads(written.decode()))
