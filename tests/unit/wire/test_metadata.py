"""Pages of tables survive the way over the wire."""

import pytest

from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import Ask, TablePage
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch
from dittomq.routes import DataVersion
from dittomq.wire import metadata as wire

VERSION = DataVersion(3, 2, 1)
TOPICS = (TopicConfig("orders", 1, 2, 4, other_fields={"x": {1: 2}}), TopicConfig("bills"))
GROUPS = (GroupConfig("billing", retry_queues=3, incarnation=7),)


@pytest.mark.parametrize(
    "page",
    [
        TablePage(VERSION, TOPICS, "token", minimums={("gone", 3): 7}, led=Epoch(3)),
        TablePage(VERSION, TOPICS[:1], minimums={("gone", 3): 7}, led=Epoch(3), is_delta=True, removed=("gone",)),
        TablePage(VERSION, not_modified=True),
    ],
    ids=["rows", "changes", "nothing"],
)
def test_page_of_topics_survives_the_way(page: TablePage[TopicConfig]) -> None:
    assert wire.topics_page(wire.topics_response(page)) == page


@pytest.mark.parametrize("is_delta", [False, True])
def test_page_of_groups_survives_the_way(is_delta: bool) -> None:
    page = TablePage(VERSION, GROUPS, led=Epoch(3), is_delta=is_delta, removed=("gone",) if is_delta else ())

    assert wire.groups_page(wire.groups_response(page)) == page


def test_slave_asks_for_changes_since_the_version_it_holds() -> None:
    for request in (wire.topics_request(Ask(known=VERSION)), wire.groups_request(Ask(known=VERSION))):
        assert request.takes_changes
        assert wire.ask(request) == Ask(known=VERSION)
