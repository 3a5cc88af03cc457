"""RocketMQ's JSON is read as fastjson writes it, and written so that fastjson reads it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.metadata import fastjson
from dittomq.metadata.rows import Json

names = st.text().filter(lambda name: not name.startswith("\0"))
scalars: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4) | st.dictionaries(st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(values, st.integers(0, 4))
def test_what_is_written_is_read_back_equal(value: Json, pretty_levels: int) -> None:
    assert fastjson.loads(fastjson.dumps(value, pretty_levels)) == value


@given(values)
def test_what_any_json_library_writes_is_read_alike(value: Json) -> None:
    text = json.dumps(value)

    assert fastjson.loads(text) == json.loads(text)


def test_integer_keys_stand_without_quotes_and_in_order() -> None:
    offsets: Json = {"offsetTable": {10: 7, 9: 8, "a": 1}}

    assert fastjson.dumps(offsets) == '{"offsetTable":{9:8,10:7,"a":1}}'
    assert fastjson.loads('{"offsetTable":{9:8, 10 : 7,\n"a":1}}') == offsets


def test_what_looks_like_a_key_inside_a_string_stays_as_it_is() -> None:
    text = '{"a":"1:2, {3:4} \\" 5:6"}'

    assert fastjson.loads(text) == {"a": '1:2, {3:4} " 5:6'}


def test_keys_are_sorted_by_name_and_outer_objects_have_a_line_for_each() -> None:
    assert fastjson.dumps({"b": {"y": 1, "x": [1, "2"]}, "a": {}}, pretty_levels=1) == '{\n\t"a":{},\n\t"b":{"x":[1,"2"],"y":1}\n}'


@pytest.mark.parametrize(
    "text", ["", "{", '{"a":}', '{"a":NaN}', '{"a":1}x', "{1 2:3}", '{"a":"b', "[" * 100_000, '"' * 99_999, "a" * 200_000]
)
def test_what_is_damaged_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the sentence is the JSON parser's
        fastjson.loads(text)


@pytest.mark.parametrize(
    "text",
    ['{"a":1e999}', '{"a":[-1e999]}', '{"a":"\\ud800"}', '{"\\uDFFF":1}', "[" * 200 + "]" * 200, '{"a":' * 200 + "1" + "}" * 200],
)
def test_what_could_not_be_written_so_that_it_is_read_again_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the sentence is the JSON parser's
        fastjson.loads(text)


def test_a_letter_that_takes_two_halves_is_read_and_written() -> None:
    assert fastjson.loads('{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    assert fastjson.dumps({"a": "\U0001f600"}) == '{"a":"\\ud83d\\ude00"}'
