"""A number that no next epoch can follow is no epoch, whoever says it: it would be remembered for good."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.naming.v1 import naming_pb2
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.errors import InvalidField
from dittomq.lineage import FOREIGN, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.wire import metadata, naming, standing
from dittomq.wire.lineages import lineage_from_pb, lineage_to_pb
from dittomq.wire.replication import master_event_from_pb, slave_event_from_pb

STANCE = replication_pb2.REPLICA_STANCE_FOLLOWING
ROLE, STATE = naming_pb2.BROKER_ROLE_ASYNC_MASTER, naming_pb2.BROKER_STATE_RECOVERING
NO_EPOCHS = [-1, (1 << 62) + 1, (1 << 63) - 1]
READERS: list[tuple[Callable[[int], Message], Callable[..., object]]] = [
    (lambda epoch: replication_pb2.ReplicateRequest(hello=replication_pb2.Hello(heard_epoch=epoch)), slave_event_from_pb),
    (
        lambda epoch: replication_pb2.ReplicateRequest(
            hello=replication_pb2.Hello(lineage=[replication_pb2.LineageEntry(epoch=epoch, start_offset=0)])
        ),
        slave_event_from_pb,
    ),
    (
        lambda epoch: replication_pb2.ReplicateResponse(
            verdict=replication_pb2.Verdict(action=replication_pb2.VERDICT_ACTION_STREAM, epoch=epoch)
        ),
        master_event_from_pb,
    ),
    (lambda epoch: replication_pb2.AnnounceEpochRequest(epoch=epoch, opener_id=1), standing.announced),
    (lambda epoch: replication_pb2.AnnounceEpochResponse(stance=STANCE, epoch=epoch), standing.known),
    (lambda epoch: replication_pb2.StepDownResponse(witnessed_epoch=epoch), standing.stepped_down),
    (lambda epoch: metadata_pb2.GetAllTopicConfigResponse(leading_epoch=epoch), metadata.topics_page),
    (lambda epoch: metadata_pb2.GetAllConsumerOffsetResponse(leading_epoch=epoch), metadata.consumer_offsets_page),
    (lambda epoch: metadata_pb2.GetAllDelayOffsetResponse(leading_epoch=epoch), metadata.delay_offsets_page),
    (lambda epoch: metadata_pb2.GetAllSubscriptionGroupConfigResponse(leading_epoch=epoch), metadata.groups_page),
    (lambda epoch: replication_pb2.DescribeReplicaResponse(stance=STANCE, granted_epoch=epoch), standing.standing),
    (lambda epoch: naming_pb2.RegisterBrokerRequest(broker_id=1, role=ROLE, state=STATE, epoch=epoch), naming.registration),
    (lambda epoch: naming_pb2.RegisterBrokerRequest(broker_id=1, role=ROLE, state=STATE, granted_epoch=epoch), naming.registration),
    (lambda epoch: naming_pb2.RegisterBrokerResponse(group_epoch=epoch), naming.membership),
    (lambda epoch: naming_pb2.HeartbeatRequest(state=STATE, epoch=epoch), naming.beat),
    (lambda epoch: naming_pb2.HeartbeatResponse(rival=naming_pb2.RivalClaim(epoch=epoch)), naming.beat_answer),
]


@pytest.mark.parametrize("epoch", NO_EPOCHS)
@pytest.mark.parametrize(("say", "read"), READERS)
def test_what_can_be_no_epoch_is_refused(say: Callable[[int], Message], read: Callable[..., object], epoch: int) -> None:
    read(say(7))

    with pytest.raises(InvalidField, match="is none that can be opened" if epoch < 1 and read is standing.announced else "is no epoch"):
        read(say(epoch))


OPENERS: list[tuple[Callable[[int], Message], Callable[..., object]]] = [
    (lambda number: replication_pb2.AnnounceEpochRequest(epoch=7, opener_id=number), standing.announced),
    (lambda number: replication_pb2.AnnounceEpochResponse(stance=STANCE, epoch=7, opener_id=number), standing.known),
    (lambda number: replication_pb2.DescribeReplicaResponse(stance=STANCE, granted_to=number), standing.standing),
    (lambda number: replication_pb2.DescribeReplicaResponse(stance=STANCE, node_id=number), standing.standing),
    (lambda number: replication_pb2.DescribeReplicaResponse(stance=STANCE, broker_id=number), standing.standing),
    (lambda number: replication_pb2.StepDownResponse(known=[promised(number)]), standing.stepped_down),
    (lambda number: hello(broker_id=number), slave_event_from_pb),
    (lambda number: hello(heard_opener_id=number), slave_event_from_pb),
    (lambda number: hello(promised=[promised(number)]), slave_event_from_pb),
    (lambda number: hello(lineage=[replication_pb2.LineageEntry(epoch=7, opener_id=opener(number))]), slave_event_from_pb),
]


def opener(number: int) -> int:
    """Of a lineage: there -1 is nobody of ours."""
    return number if number != FOREIGN else FOREIGN - 1


def promised(opener_id: int) -> replication_pb2.PromisedEpoch:
    return replication_pb2.PromisedEpoch(epoch=7, opener_id=opener_id)


def hello(**said: Any) -> replication_pb2.ReplicateRequest:
    return replication_pb2.ReplicateRequest(hello=replication_pb2.Hello(**said))


@pytest.mark.parametrize("number", [-1, 1 << 31, (1 << 63) - 1])
@pytest.mark.parametrize(("say", "read"), OPENERS)
def test_what_can_be_no_node_is_refused(say: Callable[[int], Message], read: Callable[..., object], number: int) -> None:
    read(say(3))

    with pytest.raises(InvalidField, match="is no node's number"):
        read(say(number))


def test_a_lineage_with_a_stretch_that_rocketmq_wrote_arrives() -> None:
    """As a hello, a verdict and the description of a copy carry it."""
    ours = LineageEntry(Epoch(7), 1, 5, PhysicalOffset(0))
    lineage = (ours, LineageEntry(Epoch(7), FOREIGN, 9, PhysicalOffset(100)), LineageEntry(Epoch(8), 0, 6, PhysicalOffset(200)))

    assert lineage_from_pb(lineage_to_pb(lineage)) == lineage


@pytest.mark.parametrize("broker_id", [-1, 0, 1 << 31])
def test_a_master_steps_down_for_no_id_that_a_slave_cannot_have(broker_id: int) -> None:
    with pytest.raises(InvalidField, match="is no slave's"):
        standing.step_down_order(replication_pb2.StepDownRequest(broker_id=broker_id, timeout_ms=1))
