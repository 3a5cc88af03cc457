"""Questions and answers of an election ↔ `dittomq.replication.election_events`. From the wire comes a valid value or InvalidField."""

from collections.abc import Sequence
from typing import Final

from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.replication.v1 import election_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.errors import InvalidField
from dittomq.group_record import ReplicaId
from dittomq.offsets import PhysicalOffset
from dittomq.replication.election_events import Position, SentBy, StandOrder
from dittomq.replication.events import MAX_REPLICATION_SLOTS
from dittomq.replication.promise import PromiseRequest
from dittomq.routes import DataVersion
from dittomq.wire.epoch_history import epoch_history_from_pb, epoch_history_to_pb
from dittomq.wire.epochs import epoch_from_pb, node_from_pb, offset_from_pb, text_from_pb
from dittomq.wire.metadata import version_from_pb, version_to_pb

_MAX_TABLES: Final = 16
_SENT_BY: Final = {
    pb.SENT_BY_UNSPECIFIED: SentBy.NOBODY,
    pb.SENT_BY_MASTER: SentBy.MASTER,
    pb.SENT_BY_OPERATOR: SentBy.OPERATOR,
}
_PB_SENT_BY: Final = {sent_by: number for number, sent_by in _SENT_BY.items()}


def ask_request(candidate: str, sent_by: SentBy, cluster: str, broker: str) -> pb.AskRequest:
    """`candidate` is "" where nobody stands."""
    return pb.AskRequest(cluster=cluster, broker=broker, candidate=candidate, sent_by=_PB_SENT_BY[sent_by])


def asked(request: pb.AskRequest) -> tuple[str, SentBy]:
    """The candidate's node, "" where nobody stands, and who sent it."""
    candidate = node_from_pb("candidate", request.candidate) if request.candidate else ""
    return candidate, _sent_by(request.sent_by)


def ask_response(position: Position, would_promise: bool) -> pb.AskResponse:
    return pb.AskResponse(position=_position_to_pb(position), would_promise=would_promise)


def ask_answer(response: pb.AskResponse) -> tuple[Position, bool]:
    return _position(response.position), response.would_promise


def promise_request(request: PromiseRequest, cluster: str, broker: str) -> pb.PromiseRequest:
    return pb.PromiseRequest(
        cluster=cluster,
        broker=broker,
        candidate=request.candidate,
        candidate_replica=str(request.replica),
        epoch=request.epoch,
        birth=request.birth,
        sent_by=_PB_SENT_BY[request.sent_by],
    )


def promise_asked(request: pb.PromiseRequest) -> PromiseRequest:
    """Checked also: an epoch that somebody can open."""
    if request.epoch < 1:
        raise InvalidField("epoch", f"{request.epoch:,} is none that can be promised; they count from 1")
    return PromiseRequest(
        node_from_pb("candidate", request.candidate),
        _replica("candidate_replica", request.candidate_replica),
        epoch_from_pb("epoch", request.epoch),
        text_from_pb("birth", request.birth),
        _sent_by(request.sent_by),
    )


def promise_response(position: Position, is_promised: bool) -> pb.PromiseResponse:
    return pb.PromiseResponse(promised=is_promised, position=_position_to_pb(position))


def promise_answer(response: pb.PromiseResponse) -> tuple[Position, bool]:
    return _position(response.position), response.promised


def stand_request(order: StandOrder, cluster: str, broker: str) -> pb.StandRequest:
    return pb.StandRequest(cluster=cluster, broker=broker, sent_by=_PB_SENT_BY[order.sent_by], allow_data_loss=order.allow_data_loss)


def stand_order(request: pb.StandRequest) -> StandOrder:
    """Checked also: somebody sends it, and only an operator allows data loss."""
    sent_by = _sent_by(request.sent_by)
    if sent_by is SentBy.NOBODY:
        raise InvalidField("sent_by", "is missing; a master or an operator sends a replica")
    if request.allow_data_loss and sent_by is not SentBy.OPERATOR:
        raise InvalidField("allow_data_loss", "only an operator allows it")
    return StandOrder(sent_by, request.allow_data_loss)


def _sent_by(number: pb.SentBy) -> SentBy:
    if number not in _SENT_BY:
        raise InvalidField("sent_by", f"{number} is not known here; upgrade this node")
    return _SENT_BY[number]


def _position_to_pb(position: Position) -> pb.ReplicaPosition:
    return pb.ReplicaPosition(
        node=position.node,
        replica=str(position.replica),
        birth=position.birth,
        adopted_epoch=position.adopted,
        log_end_offset=position.log_end,
        log_start_offset=position.log_start,
        promised_epoch=position.promised,
        confirmed_offset=position.confirmed,
        record_revision=position.revision,
        damaged_bytes=position.damaged_bytes,
        priority=position.priority,
        sees_master=position.sees_master,
        leads=position.leads,
        dropped_torn_tail=position.dropped_torn_tail,
        address=position.address,
        tables=[version_to_pb(each) for each in position.tables],
        slots=replication_pb2.ReplicationSlots(
            slots=[replication_pb2.ReplicationSlot(node=node, offset=offset) for node, offset in position.slots]
        ),
        epoch_history=epoch_history_to_pb(position.epoch_history),
    )


def _position(given: pb.ReplicaPosition) -> Position:
    """Checked: its log ends where it starts or behind, and what it knows to be confirmed lies in it."""
    start, end = (
        offset_from_pb("position.log_start_offset", given.log_start_offset),
        offset_from_pb("position.log_end_offset", given.log_end_offset),
    )
    confirmed = offset_from_pb("position.confirmed_offset", given.confirmed_offset)
    if start > end:
        raise InvalidField("position.log_start_offset", f"{start:,} lies behind the log's end at {end:,}")
    return Position(
        node=node_from_pb("position.node", given.node),
        replica=_replica("position.replica", given.replica),
        birth=text_from_pb("position.birth", given.birth),
        adopted=epoch_from_pb("position.adopted_epoch", given.adopted_epoch),
        log_end=end,
        log_start=start,
        promised=epoch_from_pb("position.promised_epoch", given.promised_epoch),
        confirmed=confirmed,
        revision=_count("position.record_revision", given.record_revision),
        damaged_bytes=_count("position.damaged_bytes", given.damaged_bytes),
        priority=given.priority,
        sees_master=given.sees_master,
        leads=given.leads,
        dropped_torn_tail=given.dropped_torn_tail,
        address=text_from_pb("position.address", given.address),
        tables=_versions(given.tables),
        slots=_slots(given.slots),
        epoch_history=epoch_history_from_pb(list(given.epoch_history)),
    )


def _replica(field: str, text: str) -> ReplicaId:
    """Checked: "uuid.incarnation", both in visible ASCII characters."""
    replica = ReplicaId.parse(text_from_pb(field, text))
    if not replica.uuid or not replica.incarnation or not (text.isascii() and text.isprintable() and " " not in text):
        raise InvalidField(field, f'{text[:64]!a} is no replica; its id is "uuid.incarnation"')
    return replica


def _count(field: str, number: int) -> int:
    if number < 0:
        raise InvalidField(field, f"{number:,} is less than 0")
    return number


def _versions(given: Sequence[metadata_pb2.DataVersion]) -> tuple[DataVersion, ...]:
    if len(given) > _MAX_TABLES:
        raise InvalidField("position.tables", f"{len(given):,} versions, the limit is {_MAX_TABLES}")
    return tuple(map(version_from_pb, given))


def _slots(given: replication_pb2.ReplicationSlots) -> tuple[tuple[str, PhysicalOffset], ...]:
    if len(given.slots) > MAX_REPLICATION_SLOTS:
        raise InvalidField("position.slots", f"{len(given.slots):,} slaves, the limit is {MAX_REPLICATION_SLOTS}")
    return tuple((node_from_pb("position.slots", each.node), offset_from_pb("position.slots", each.offset)) for each in given.slots)
