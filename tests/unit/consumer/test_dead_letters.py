"""Page tokens of dead letters belong to one query, and a replayed copy has no tries before it."""

from dataclasses import replace

import pytest

from dittomq.consumer.dead_letters import DeadLetterQuery, LetterCursor, LetterPlace, cursor_of, cursor_token, replayed_properties
from dittomq.errors import InvalidField

QUERY = DeadLetterQuery("billing", 5)
CURSOR = LetterCursor(1_000, LetterPlace(3, 17))


def test_token_names_the_place_where_the_next_page_begins() -> None:
    token = cursor_token(QUERY, CURSOR)

    assert cursor_of(replace(QUERY, page_token=token, page_size=7)) == CURSOR
    assert cursor_of(QUERY) is None


@pytest.mark.parametrize("other", [DeadLetterQuery("billing", 6), DeadLetterQuery("shipping", 5)])
def test_token_of_another_query_is_refused(other: DeadLetterQuery) -> None:
    with pytest.raises(InvalidField):
        cursor_of(replace(QUERY, page_token=cursor_token(other, CURSOR)))


@pytest.mark.parametrize("token", ["x", "1.2.3", "-1.0.0.00000000", "1.0.0.0000000٣", " 1.0.0.00000000"])
def test_text_that_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidField):
        cursor_of(replace(QUERY, page_token=token))


def test_replayed_copy_keeps_everything_but_its_tries() -> None:
    properties = {"RECONSUME_TIME": "16", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "AB", "who": "me"}

    assert replayed_properties(properties) == {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "AB", "who": "me"}
