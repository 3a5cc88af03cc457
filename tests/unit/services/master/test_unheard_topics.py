"""What was taken in after a table changed may be for a row that the table never had."""

import pytest

from dittomq.routes import DataVersion
from services.master.unheard_topics import is_later

VERSION = DataVersion(state_version=3, timestamp_ms=1_000, counter=7)


@pytest.mark.parametrize(
    ("epoch", "stored_ms", "later"),
    [(3, 999, False), (3, 1_000, True), (3, 1_001, True), (2, 5_000, False), (4, 10, True), (0, 5_000, False)],
    ids=["before", "in the same ms", "after", "earlier epoch", "later epoch with a clock behind", "of RocketMQ"],
)
def test_message_is_later_than_a_table_by_epoch_and_then_by_time(epoch: int, stored_ms: int, *, later: bool) -> None:
    assert is_later(VERSION, epoch, stored_ms) is later
