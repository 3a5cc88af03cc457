"""The quick way of reading neighbouring records: the messages of the slow way, and nothing that is damaged or another message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.records.decoding import message_of
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import CRC_BYTES, Host
from dittomq.commitlog.records.plain_messages import Place, count_whole, messages_in
from dittomq.errors import CorruptRecord
from dittomq.message import Draft, StoredMessage

BASE, QUEUE, FIRST = 4_096, 3, 70
HOST = Host(bytes((127, 0, 0, 1)), 10911)
PROPERTIES = st.sampled_from(
    [
        "",
        "PID\x01p-1\x02SEQ\x0112\x02",
        "PID\x01p-1\x02SEQ\x0113\x02",
        "PID\x01p-2\x02SEQ\x010\x02",
        "PID\x01p-1\x02SEQ\x0114\x02TAGS\x01paid\x02",
        "PID\x01p-1\x02SEQ\x01x\x02",
        "PID\x01p-1\x02SEQ\x01\x02",
        "PID\x01p-1\x02OTHER\x0112\x02",
        "TAGS\x01paid\x02KEYS\x01o-17 o-18\x02colour\x01red\x02",
        "PID\x01p-1\x02",
    ]
)
DRAFTS = st.builds(
    lambda body, flag, properties: Draft("orders", QUEUE, flag, 1_000, body, properties.encode(), 0),
    st.binary(max_size=40),
    st.integers(-(2**31), 2**31 - 1),
    PROPERTIES,
)


def laid(drafts: list[Draft], host: Host = HOST) -> tuple[bytes, list[Place]]:
    """Their records one behind the other."""
    block, places = b"", []
    for number, draft in enumerate(drafts, FIRST):
        record = encode_draft(draft, number, BASE + len(block), 2_000 + number, host=host)
        places.append(Place(number, BASE + len(block), len(record)))
        block += record
    return block, places


def read(block: bytes, places: list[Place], topic: str = "orders", queue: int = QUEUE) -> list[StoredMessage]:
    """Those that are whole, as whoever gets their records has them."""
    count = count_whole(block, BASE, places, topic=topic, queue=queue)
    return messages_in(block[: places[count - 1].end - BASE] if count else b"", topic=topic, queue=queue, node="a/0")


@given(st.lists(DRAFTS, max_size=6))
def test_records_of_ours_are_the_messages_that_one_by_one_they_are(drafts: list[Draft]) -> None:
    block, places = laid(drafts)

    assert read(block, places) == [message_of(block[place.position - BASE : place.end - BASE]) for place in places]


@given(st.lists(DRAFTS, min_size=1, max_size=4), st.data())
def test_a_record_with_one_other_bit_ends_what_is_read_before_it(drafts: list[Draft], data: st.DataObject) -> None:
    block, places = laid(drafts)
    bit = data.draw(st.integers(0, 8 * len(block) - 1))
    damaged = bytearray(block)
    damaged[bit // 8] ^= 1 << bit % 8
    whole = [place for place in places if place.end - BASE <= bit // 8]

    assert read(bytes(damaged), places) == read(block, whole)


@pytest.mark.parametrize(
    "wrong",
    [{"topic": "order"}, {"topic": "orders2"}, {"queue": QUEUE + 1}],
    ids=["a topic that is shorter", "a topic that is longer", "a queue"],
)
def test_a_record_of_another_queue_is_not_read(wrong: dict[str, object]) -> None:
    block, places = laid([Draft("orders", QUEUE, 0, 1_000, b"paid", b"", 0)])

    assert read(block, places, **wrong) == []  # type: ignore[arg-type]


def test_a_record_at_another_place_or_cut_off_is_not_read() -> None:
    block, [place] = laid([Draft("orders", QUEUE, 0, 1_000, b"paid", b"", 0)])

    assert read(block, [place._replace(offset=place.offset + 1)]) == []
    assert read(block[:-1], [place]) == []
    assert read(block, [place._replace(size=place.size - 1)]) == []
    assert read(block, [place._replace(size=10)]) == []
    assert count_whole(block, BASE + 1, [place._replace(position=BASE + 1)], topic="orders", queue=QUEUE) == 0


def test_a_record_of_an_ipv6_host_is_left_to_the_slow_way() -> None:
    block, places = laid([Draft("orders", QUEUE, 0, 1_000, b"paid", b"", 0)], Host(bytes(16), 10911))

    assert read(block, places) == []


@given(st.lists(DRAFTS, min_size=1, max_size=3), st.data())
def test_records_that_changed_on_their_way_are_told_as_damage(drafts: list[Draft], data: st.DataObject) -> None:
    block, places = laid(drafts)
    place = data.draw(st.sampled_from(places))
    bit = data.draw(st.integers(8 * (place.position - BASE), 8 * (place.end - BASE - CRC_BYTES) - 1))
    changed = bytearray(block)
    changed[bit // 8] ^= 1 << bit % 8

    with pytest.raises(CorruptRecord):
        messages_in(bytes(changed), topic="orders", queue=QUEUE, node="a/0")


@given(st.lists(DRAFTS, min_size=1, max_size=3), st.data())
def test_records_that_came_cut_off_are_told_as_damage(drafts: list[Draft], data: st.DataObject) -> None:
    block, places = laid(drafts)
    length = data.draw(st.integers(1, len(block) - 1).filter(lambda length: length not in {place.end - BASE for place in places}))

    with pytest.raises(CorruptRecord):
        messages_in(block[:length], topic="orders", queue=QUEUE, node="a/0")
