"""Paths into JSON records."""

import pytest
import typer

from dittomq.cli.records import parse_path
from dittomq.errors import InvalidField


@pytest.mark.parametrize(
    ("path", "document", "expected"),
    [
        (".customer", {"customer": "c-1"}, "c-1"),
        (".order.id", {"order": {"id": 17}}, "17"),
        (".items[1].sku", {"items": [{"sku": "a"}, {"sku": "b"}]}, "b"),
        ("[0]", ["first"], "first"),
        (".price", {"price": 1.5}, "1.5"),
        (".zero", {"zero": 0}, "0"),
        (".empty", {"empty": ""}, ""),
    ],
)
def test_a_path_finds_strings_and_numbers(path: str, document: object, expected: str) -> None:
    assert parse_path(path).find(document) == expected


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (".customer", {}),
        (".customer", {"customer": None}),
        (".customer", {"customer": True}),
        (".customer", {"customer": {}}),
        (".customer", ["customer"]),
        (".customer.id", {"customer": "c-1"}),
        ("[3]", [1]),
        ("[0]", {"0": 1}),
    ],
)
def test_what_is_absent_or_no_string_or_number_is_refused_by_the_paths_name(path: str, document: object) -> None:
    with pytest.raises(InvalidField, match="no string or number"):
        parse_path(path).find(document)


@pytest.mark.parametrize("text", ["", ".", "customer", ".a..b", ".a[", ".a[x]", ".a b", ". a", f".a[{'9' * 5_000}]"])
def test_what_is_no_path_is_a_usage_error_with_an_example(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write for example"):
        parse_path(text)
