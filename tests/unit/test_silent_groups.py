"""What a nameserver lists of groups of which nobody is registered."""

from dataclasses import replace

import pytest

from dittomq.offsets import Epoch
from dittomq.routes import NodePage, Opening, SilentGroup
from dittomq.wire import naming as wire
from services.nameserver.openings import Openings
from services.nameserver.registry import Registry
from tests.support.naming import at, beat, master

EXPIRY_MS = 30_000
OPENINGS = [("c", Opening(Epoch(7), 1)), ("a", Opening(Epoch(7), 0)), ("b", Opening(Epoch(3), None))]


@pytest.fixture
def registry() -> Registry:
    """It was started at 0, and knew of three groups before."""
    return Registry("dittomq", EXPIRY_MS, at(0), Openings(OPENINGS))


def test_a_group_is_silent_while_no_node_of_it_is_registered(registry: Registry) -> None:
    registry.register(master(), "s1", at(EXPIRY_MS))
    b, c = SilentGroup("dittomq", "b", Opening(Epoch(3), None)), SilentGroup("dittomq", "c", Opening(Epoch(7), 1))
    a = SilentGroup("dittomq", "a", Opening(Epoch(8), 0))

    assert registry.page(0, "", "default", at(EXPIRY_MS)).silent == (b, c)
    registry.heartbeat(replace(beat("s1", epoch=8), opener_id=0), at(EXPIRY_MS))
    registry.unregister("s1")
    assert registry.page(0, "", "default", at(EXPIRY_MS)).silent == (a, b, c)


def test_until_its_expiry_is_over_a_nameserver_says_that_a_silent_group_may_not_have_registered_yet(registry: Registry) -> None:
    assert all(group.unsettled for group in registry.page(0, "", "default", at(EXPIRY_MS - 1)).silent)
    assert not any(group.unsettled for group in registry.page(0, "", "default", at(EXPIRY_MS)).silent)


def test_who_has_registered_with_a_nameserver_that_is_newly_up_and_left_again_is_silent_for_certain(registry: Registry) -> None:
    registry.register(master(), "s1", at(0))
    registry.unregister("s1")

    assert [(group.broker, group.unsettled) for group in registry.page(0, "", "default", at(1)).silent] == [
        ("a", False),
        ("b", True),
        ("c", True),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_silent_groups_follow_the_last_node_over_all_pages(registry: Registry, size: int) -> None:
    registry.register(master(), "s1", at(0))
    registry.register(master("d" * 32, host="d-0", broker="d"), "s2", at(0))

    pages = [registry.page(size, "", "default", at(0))]
    while pages[-1].next_page_token:
        pages.append(registry.page(size, pages[-1].next_page_token, "default", at(0)))

    assert [[*(node.name for node in page.nodes), *(group.broker for group in page.silent)] for page in pages] == [
        ["a/0", "d/0", "b", "c"][start : start + size] for start in range(0, 4, size)
    ]


def test_silent_groups_survive_the_way() -> None:
    known = SilentGroup("dittomq", "b", Opening(Epoch(3), 0), unsettled=True)
    sent = NodePage((), "7:1", (known, replace(known, newest=Opening(Epoch(3), None))))

    assert wire.node_page(wire.node_page_response(sent)) == sent
