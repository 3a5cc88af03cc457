"""A number that no next epoch can follow is no epoch, whoever says it: it would be remembered for good."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.naming.v1 import naming_pb2
from dittomq._pb.ditto.replication.v1 import election_pb2, replication_pb2
from dittomq.epoch_history import FOREIGN, EpochEntry
from dittomq.errors import InvalidField
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.wire import election, metadata, naming
from dittomq.wire.epoch_history import epoch_history_from_pb, epoch_history_to_pb
from dittomq.wire.replication import master_event_from_pb, slave_event_from_pb

ROLE, STATE = naming_pb2.BROKER_ROLE_ASYNC_MASTER, naming_pb2.BROKER_STATE_RECOVERING
NO_EPOCHS = [-1, (1 << 62) + 1, (1 << 63) - 1]


def handshake(**said: Any) -> replication_pb2.ReplicateRequest:
    return replication_pb2.ReplicateRequest(handshake=replication_pb2.Handshake(**said))


def position(**said: Any) -> election_pb2.AskResponse:
    return election_pb2.AskResponse(position=election_pb2.ReplicaPosition(node="a/1", replica="u.i", **said))


def candidacy(**said: Any) -> election_pb2.PromiseRequest:
    return election_pb2.PromiseRequest(candidate="a/1", candidate_replica="u.i", **said)


def entry(**said: Any) -> replication_pb2.EpochEntry:
    return replication_pb2.EpochEntry(**said)


READERS: list[tuple[Callable[[int], Message], Callable[..., object]]] = [
    (lambda epoch: handshake(adopted_epoch=epoch), slave_event_from_pb),
    (lambda epoch: handshake(promised_epoch=epoch), slave_event_from_pb),
    (lambda epoch: handshake(epoch_history=[entry(epoch=epoch, start_offset=0)]), slave_event_from_pb),
    (lambda epoch: replication_pb2.ReplicateRequest(ack=replication_pb2.Ack(adopted_epoch=epoch)), slave_event_from_pb),
    (
        lambda epoch: replication_pb2.ReplicateResponse(
            handshake_result=replication_pb2.HandshakeResult(action=replication_pb2.SYNC_ACTION_STREAM, epoch=epoch)
        ),
        master_event_from_pb,
    ),
    (lambda epoch: position(adopted_epoch=epoch), election.ask_answer),
    (lambda epoch: position(promised_epoch=epoch), election.ask_answer),
    (lambda epoch: position(epoch_history=[entry(epoch=epoch, start_offset=0)]), election.ask_answer),
    (lambda epoch: candidacy(epoch=epoch), election.promise_asked),
    (lambda epoch: metadata_pb2.GetAllTopicConfigResponse(leading_epoch=epoch), metadata.topics_page),
    (lambda epoch: metadata_pb2.GetAllConsumerOffsetResponse(leading_epoch=epoch), metadata.consumer_offsets_page),
    (lambda epoch: metadata_pb2.GetAllDelayOffsetResponse(leading_epoch=epoch), metadata.delay_offsets_page),
    (lambda epoch: metadata_pb2.GetAllSubscriptionGroupConfigResponse(leading_epoch=epoch), metadata.groups_page),
    (lambda epoch: naming_pb2.RegisterBrokerRequest(broker_id=1, role=ROLE, state=STATE, epoch=epoch), naming.registration),
    (lambda epoch: naming_pb2.HeartbeatRequest(state=STATE, epoch=epoch), naming.beat),
]


@pytest.mark.parametrize("epoch", NO_EPOCHS)
@pytest.mark.parametrize(("say", "read"), READERS)
def test_what_can_be_no_epoch_is_refused(say: Callable[[int], Message], read: Callable[..., object], epoch: int) -> None:
    read(say(7))

    with pytest.raises(InvalidField, match=r"epoch|lineage"):
        read(say(epoch))


def test_no_promise_is_asked_for_an_epoch_that_no_master_opens() -> None:
    with pytest.raises(InvalidField, match="none that can be promised"):
        election.promise_asked(candidacy(epoch=0))


OPENERS: list[tuple[Callable[[int], Message], Callable[..., object]]] = [
    (lambda number: handshake(broker_id=number), slave_event_from_pb),
    (lambda number: handshake(epoch_history=[entry(epoch=7, master_id=opener(number))]), slave_event_from_pb),
    (lambda number: position(epoch_history=[entry(epoch=7, master_id=opener(number))]), election.ask_answer),
]


def opener(number: int) -> int:
    """Of an epoch history: there -1 is none of ours."""
    return number if number != FOREIGN else FOREIGN - 1


@pytest.mark.parametrize("number", [-1, 1 << 31, (1 << 63) - 1])
@pytest.mark.parametrize(("say", "read"), OPENERS)
def test_what_can_be_no_node_is_refused(say: Callable[[int], Message], read: Callable[..., object], number: int) -> None:
    read(say(3))

    with pytest.raises(InvalidField, match="is no node's number"):
        read(say(number))


def test_an_epoch_history_with_a_stretch_that_rocketmq_wrote_arrives() -> None:
    """As a handshake, a handshake result and the description of a copy carry it."""
    ours = EpochEntry(Epoch(7), 1, 5, PhysicalOffset(0))
    epoch_history = (ours, EpochEntry(Epoch(7), FOREIGN, 9, PhysicalOffset(100)), EpochEntry(Epoch(8), 0, 6, PhysicalOffset(200)))

    assert epoch_history_from_pb(epoch_history_to_pb(epoch_history)) == epoch_history
