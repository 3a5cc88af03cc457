"""What the key index keeps of a key, and of a file's name and times."""

import pytest

from dittomq.commitlog.queues.key_format import ROCKETMQ_KEY_SIZES, Header, file_name, key_hash, keys_of, seconds_since
from dittomq.properties import java_hash, tags_code


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("TagA", 2598919),
        ("polygenelubricants", -(1 << 31)),
        ("🚀", 31 * 0xD83D + 0xDE80),
        ("大", 22823),
    ],
)
def test_a_hash_is_javas(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed == tags_code(text)


def test_a_hash_goes_on_from_what_stands_before() -> None:
    assert java_hash("größe", java_hash("orders#")) == java_hash("orders#größe")


def test_a_key_is_hashed_with_its_topic_and_without_its_sign() -> None:
    assert key_hash("orders", "o-17") == abs(java_hash("orders#o-17"))
    assert key_hash("a", "o-17") != key_hash("b", "o-17")


def test_the_one_hash_that_has_no_positive_counterpart_counts_as_zero() -> None:
    key = key_with_hash("orders#", 1 << 31)

    assert java_hash(f"orders#{key}") == -(1 << 31)
    assert key_hash("orders", key) == 0


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        (b"", []),
        (b"TAGS\x01KEY\x02", []),
        (b"KEYS\x01o-17\x02", ["o-17"]),
        (b"TAGS\x01paid\x02KEYS\x01 one  two \x02", ["one", "two"]),
        (b"KEYS\x01one one\x02UNIQ_KEY\x017F000001\x02", ["7F000001", "one", "one"]),
        ("KEYS\x01schlüssel".encode(), ["schlüssel"]),
    ],
)
def test_a_message_is_found_by_its_unique_key_and_by_each_of_its_keys(properties: bytes, keys: list[str]) -> None:
    assert list(keys_of(properties)) == keys


@pytest.mark.parametrize(
    ("begin_ms", "store_ms", "seconds"),
    [(0, 5_000, 0), (1_000, 1_999, 0), (1_000, 3_000, 2), (3_000, 1_000, 0), (1, 1 << 62, 0x7FFFFFFF)],
)
def test_an_entry_keeps_whole_seconds_since_its_files_first(begin_ms: int, store_ms: int, seconds: int) -> None:
    assert seconds_since(begin_ms, store_ms) == seconds


@pytest.mark.parametrize(
    ("store_ms", "name"),
    [(0, "19700101000000000"), (1_795_224_456_773, "20261121012736773"), (-5, "19700101000000000"), (1 << 62, "99991231235959999")],
)
def test_a_file_is_named_by_the_time_of_its_first_entry(store_ms: int, name: str) -> None:
    assert file_name(store_ms) == name


def test_a_file_has_rocketmqs_size() -> None:
    assert ROCKETMQ_KEY_SIZES.file_bytes == 420_000_040


def test_a_header_is_read_as_it_was_written() -> None:
    header = Header(1, 2, 3, 4, 5, 6)

    assert Header.decode(header.encode()) == header
    assert len(header.encode()) == 40


def key_with_hash(before: str, wanted: int) -> str:
    """A key of seven letters that, behind `before`, has that hash."""
    start = java_hash(before + "A" * 7)
    rest, letters = (wanted - start) % (1 << 32), []
    for _ in range(7):
        rest, digit = divmod(rest, 31)
        letters.append(chr(ord("A") + digit))
    return "".join(reversed(letters))
