"""What a master knows of epochs of others, by how it came to its place."""

from dataclasses import replace

import pytest

from dittomq.offsets import Epoch
from dittomq.replication.events import MAX_PROMISES
from dittomq.replication.master_log import AS_CONFIGURED, Succession
from dittomq.routes import Opening


def opened(epoch: int, opener: int | None) -> Opening:
    return Opening(Epoch(epoch), opener)


AFTER_1 = Succession(Epoch(5), 1, Epoch(2), (opened(3, 2), opened(4, 0)))


@pytest.mark.parametrize(
    ("opening", "is_known"),
    [
        (opened(2, 7), True),
        (opened(3, 7), False),
        (opened(5, 1), True),
        (opened(6, 1), False),
        (opened(3, 2), True),
        (opened(4, 2), False),
        (opened(4, 0), True),
    ],
)
def test_it_knows_what_was_witnessed_and_what_each_master_before_it_opened_up_to_then(opening: Opening, is_known: bool) -> None:
    assert AFTER_1.knows_of(opening) is is_known


@pytest.mark.parametrize("epoch", [2, 3, 4, 5])
def test_what_the_node_before_it_led_in_on_an_earlier_disk_is_not_known_nor_handed_on(epoch: int) -> None:
    after = replace(AFTER_1, after_filled_in=Epoch(3), witnessed=Epoch(0))

    assert after.knows_of(opened(epoch, 1)) is (epoch > 3)
    assert after.handed_on(()) == (opened(4, 0), opened(3, 2))


def test_who_leads_as_configured_knows_of_nobody() -> None:
    assert not AS_CONFIGURED.knows_of(opened(1, 1))
    assert AS_CONFIGURED.handed_on(()) == ()


def test_the_newest_epoch_of_each_other_node_is_handed_on() -> None:
    assert AFTER_1.handed_on([opened(6, 2), opened(2, 0), opened(1, 3)]) == (opened(4, 0), opened(5, 1), opened(6, 2), opened(1, 3))


def test_no_more_is_handed_on_than_a_successor_takes() -> None:
    assert len(AFTER_1.handed_on(opened(1, opener) for opener in range(2 * MAX_PROMISES))) == MAX_PROMISES
