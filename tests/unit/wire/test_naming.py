"""What nameservers and brokers say to each other survives the way over the wire; too much of it is refused before it is looked at."""

from dataclasses import replace

import pytest

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.naming.nameserver_session import NameserverAnswer
from dittomq.naming.registrar import RouteUpdate
from dittomq.offsets import Epoch
from dittomq.routes import ChangedTopics, DataVersion, GroupMaster, HeartbeatResult, Registration, RegistrationResult
from dittomq.wire import naming as wire
from tests.support.naming import beat, master, orders


@pytest.mark.parametrize("sent", [master(), replace(master(), configured_id=1)])
def test_a_registration_survives_the_way(sent: Registration) -> None:
    assert wire.registration(wire.registration_request(sent)) == sent


@pytest.mark.parametrize("changes", [None, ChangedTopics(DataVersion(1, 2, 2), (orders(4), orders(9)), ("gone", "too"))])
def test_a_heartbeat_survives_the_way(changes: ChangedTopics | None) -> None:
    sent = replace(beat("s"), changes=changes)

    assert wire.beat(wire.beat_request(sent)) == sent


@pytest.mark.parametrize(
    ("field", "many"), [("changed_topics", [pb.TopicEntry()] * 1_001), ("removed_topics", [""] * 1_001)], ids=["changed", "removed"]
)
def test_heartbeat_with_too_many_changes_is_refused(field: str, many: list[pb.TopicEntry] | list[str]) -> None:
    request = wire.beat_request(beat("s"))
    getattr(request, field).extend(many)

    with pytest.raises(InvalidField, match=f"number of {field}: 1,001 is outside"):
        wire.beat(request)


@pytest.mark.parametrize(
    ("field", "many"),
    [
        ("topics", [pb.TopicEntry()] * (wire.MAX_TOPICS + 1)),
        ("addresses", [pb.NetworkAddress(network=f"n{number}") for number in range(wire.MAX_NETWORKS + 1)]),
        ("replication_addresses", [pb.NetworkAddress(network=f"n{number}") for number in range(wire.MAX_NETWORKS + 1)]),
    ],
)
def test_oversized_registration_is_refused_before_it_is_parsed(field: str, many: list[pb.TopicEntry] | list[pb.NetworkAddress]) -> None:
    request = wire.registration_request(master())
    request.ClearField(field)
    getattr(request, field).extend(many)

    with pytest.raises(InvalidField, match=f"number of {field}: {len(many):,} is outside"):
        wire.registration(request)


@pytest.mark.parametrize("leader", [None, GroupMaster("a-0:10911", "a-0:10912", Epoch(7))])
def test_answers_of_a_nameserver_survive_the_way(leader: GroupMaster | None) -> None:
    membership, answer = RegistrationResult("s", leader, 30_000), HeartbeatResult(True, leader)

    assert wire.membership(wire.membership_response(membership)) == membership
    assert wire.beat_answer(wire.beat_response(answer)) == answer


def test_of_masters_that_nameservers_name_the_one_of_the_highest_epoch_counts() -> None:
    older, newer = (GroupMaster(f"{host}:10911", f"{host}:10912", Epoch(epoch)) for host, epoch in (("a-0", 7), ("a-9", 8)))
    answers = tuple(NameserverAnswer(name, known, 30_000) for name, known in (("n0", older), ("n1", None), ("n2", newer)))

    assert RouteUpdate(answers, "", taken=False).master == newer
    assert RouteUpdate(answers[1:2], "", taken=False).master is None
