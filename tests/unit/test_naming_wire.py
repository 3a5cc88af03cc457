"""What nameservers and brokers say to each other survives the way over the wire; too much of it is refused before it is looked at."""

from dataclasses import replace

import pytest

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.naming.desk import NameserverAnswer
from dittomq.naming.registrar import NameserverNews
from dittomq.offsets import Epoch
from dittomq.routes import NO_OPENING, BeatAnswer, Claim, Membership, Opening, Registration
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
@pytest.mark.parametrize("epoch", [None, Epoch(0), Epoch(7)])
def test_an_answer_to_a_heartbeat_survives_the_way(epoch: Epoch | None, rival: Claim | None) -> None:
    sent = BeatAnswer(True, "a-0:10911", "a-0:10912", epoch, rival)

    assert wire.beat_answer(wire.beat_response(sent)) == sent


def test_of_masters_that_nameservers_name_the_newest_counts_also_where_one_of_these_tells_no_epoch_of_its_own() -> None:
    def heard(name: str, member: Membership) -> NameserverAnswer:
        told = wire.membership(wire.membership_response(member))
        return NameserverAnswer(name, told.master, told.master_replication, told.master_epoch, told.newest, told.uptime_ms, 30_000)

    older = Membership("s", "a-0:10911", "a-0:10912", Epoch(7), 30_000, Opening(Epoch(8), 1), 1)
    newer = Membership("s", "a-9:10911", "a-9:10912", None, 30_000, Opening(Epoch(8), 1), 1)
    nothing = (False, "", False, False, False, NO_OPENING, False, (), True)
    named = NameserverNews((heard("n0", older), heard("n1", newer)), *nothing).master

    assert named is not None
    assert named.master == "a-9:10911"
