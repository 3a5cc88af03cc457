"""What nameservers and brokers say to each other survives the way over the wire; too much of it is refused before it is looked at."""

from dataclasses import replace

import pytest

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch
from dittomq.routes import BeatAnswer, Claim, Opening, Registration
from dittomq.wire import naming as wire
from tests.support.naming import master


@pytest.mark.parametrize("sent", [master(), replace(master(), configured_id=1, opener_id=1, granted_epoch=Epoch(7))])
def test_a_registration_survives_the_way(sent: Registration) -> None:
    assert wire.registration(wire.registration_request(sent)) == sent


@pytest.mark.parametrize(
    ("field", "many"),
    [
        ("topics", [pb.TopicEntry()] * (wire.MAX_TOPICS + 1)),
        ("addresses", [pb.NetworkAddress(network=f"n{number}") for number in range(wire.MAX_NETWORKS + 1)]),
        ("replication_addresses", [pb.NetworkAddress(network=f"n{number}") for number in range(wire.MAX_NETWORKS + 1)]),
    ],
)
def test_a_registration_of_more_than_the_limits_is_refused_before_any_of_it_is_taken_apart(
    field: str, many: list[pb.TopicEntry] | list[pb.NetworkAddress]
) -> None:
    request = wire.registration_request(master())
    request.ClearField(field)
    getattr(request, field).extend(many)

    with pytest.raises(InvalidField, match=f"number of {field}: {len(many):,} is outside"):
        wire.registration(request)


@pytest.mark.parametrize("rival", [None, Claim(Opening(Epoch(7), 1), None), Claim(Opening(Epoch(7), 0), Epoch(7))])
def test_an_answer_to_a_heartbeat_survives_the_way(rival: Claim | None) -> None:
    sent = BeatAnswer(True, "a-0:10911", "a-0:10912", Epoch(7), rival)

    assert wire.beat_answer(wire.beat_response(sent)) == sent
