"""The broker ids of a group in routes: the master has 0, and no two nodes have the same."""

import pytest

from dittomq.routes import wire_id


@pytest.mark.parametrize("leader", [0, 1, 2, 7])
def test_the_master_has_0_and_every_node_another_id(leader: int) -> None:
    ids = {own: wire_id(own, leader) for own in (0, 1, 2, 7)}

    assert ids[leader] == 0
    assert sorted(ids.values()) == [0, 1, 2, 7]


def test_a_node_configured_as_0_that_follows_has_the_id_of_the_node_that_leads() -> None:
    assert wire_id(0, 2) == 2


def test_while_no_master_is_known_each_node_has_its_own_id() -> None:
    assert [wire_id(own, None) for own in (0, 1, 2)] == [0, 1, 2]
