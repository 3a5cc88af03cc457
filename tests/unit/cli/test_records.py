"""Lines of a file as messages."""

import pytest

from dittomq.cli.records import LineSplitter, Recipe, parse_path
from dittomq.errors import InvalidField, MessageTooLarge
from dittomq.message import MAX_BODY_BYTES, Message

ORDERS = Recipe("orders")


def read(recipe: Recipe, *pieces: bytes) -> list[Message]:
    records = LineSplitter(recipe)
    return [message for piece in pieces for message in records.feed(piece)] + list(records.finish())


def bodies(*pieces: bytes) -> list[bytes]:
    return [message.body for message in read(ORDERS, *pieces)]


def test_each_line_is_a_message_without_its_newline() -> None:
    assert bodies(b"one\ntwo\n") == [b"one", b"two"]


def test_a_line_may_come_in_pieces() -> None:
    assert bodies(b"on", b"e\ntw", b"o\n") == [b"one", b"two"]


def test_a_last_line_without_newline_is_a_message_too() -> None:
    assert bodies(b"one\ntwo") == [b"one", b"two"]


def test_an_empty_line_is_an_empty_message() -> None:
    assert bodies(b"one\n\ntwo\n") == [b"one", b"", b"two"]


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert bodies(b"\x00\xff\x10\xab\r\n") == [b"\x00\xff\x10\xab\r"]


def test_a_line_at_the_limit_is_taken_and_one_beyond_it_is_named() -> None:
    at_limit = b"x" * MAX_BODY_BYTES

    assert bodies(at_limit + b"\nshort\n") == [at_limit, b"short"]
    with pytest.raises(MessageTooLarge, match="line 2"):
        bodies(b"short\nx" + at_limit + b"\n")


def test_keys_are_found_in_the_record() -> None:
    recipe = Recipe("orders", parse_path(".customer"), parse_path(".id"))

    [message] = read(recipe, b'{"customer": "c-1", "id": 17}\n')

    assert (message.order_key, message.keys) == ("c-1", ("17",))


@pytest.mark.parametrize("line", [b"not json\n", b"\xff\n", b'{"id": null}\n'])
def test_a_line_without_the_key_that_is_asked_for_is_named(line: bytes) -> None:
    recipe = Recipe("orders", keys=parse_path(".id"))

    with pytest.raises(InvalidField, match="line 2"):
        read(recipe, b'{"id": 1}\n' + line)


def test_a_line_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    records = LineSplitter(ORDERS)

    for _ in range(4):
        list(records.feed(b"x" * 2**20))

    with pytest.raises(MessageTooLarge, match="line 1"):
        list(records.feed(b"x"))


def test_the_lines_before_a_bad_one_are_given_out() -> None:
    given = LineSplitter(Recipe("orders", keys=parse_path(".id"))).feed(b'{"id": 1}\nnot json\n')

    assert next(given).keys == ("1",)


def test_a_line_that_nests_deeper_than_can_be_read_is_named() -> None:
    with pytest.raises(InvalidField, match="line 2"):
        read(Recipe("orders", keys=parse_path(".id")), b'{"id": 1}\n' + b"[" * 200_000 + b"\n")
