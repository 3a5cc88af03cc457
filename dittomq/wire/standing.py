"""Which replica stands where, and the change of places ↔ `dittomq.replication.promotion`."""

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.offsets import PhysicalOffset
from dittomq.replication.standings import GroupRules, KnownBefore, Stance, Standing, StepDownOrder, SteppedDown
from dittomq.routes import Opening
from dittomq.wire.degraded import degraded_from_pb, degraded_to_pb
from dittomq.wire.epochs import MAX_NODE_ID, epoch_from_pb, node_id_from_pb
from dittomq.wire.lineages import lineage_from_pb, lineage_to_pb, openings_from_pb, openings_to_pb
from dittomq.wire.metadata import version_from_pb, version_to_pb
from dittomq.wire.replication import holds_from_pb, holds_to_pb

MAX_TIMEOUT_MS = 60_000

_STANCE = {
    pb.REPLICA_STANCE_LEADING: Stance.LEADING,
    pb.REPLICA_STANCE_RECOVERING: Stance.RECOVERING,
    pb.REPLICA_STANCE_FOLLOWING: Stance.FOLLOWING,
}
_PB_STANCE = {stance: number for number, stance in _STANCE.items()}


def standing_to_pb(standing: Standing) -> pb.DescribeReplicaResponse:
    """As it is."""
    return pb.DescribeReplicaResponse(
        node=standing.node,
        node_id=standing.node_id,
        broker_id=standing.wire_id,
        replica_uuid=standing.replica_uuid,
        stance=_PB_STANCE[standing.stance],
        lineage=lineage_to_pb(standing.lineage),
        end_offset=standing.end,
        confirmed_offset=standing.confirmed,
        granted_epoch=standing.granted,
        stepped_down_offset=standing.stepped_down_at,
        rules=_rules_to_pb(standing.rules),
        topics=version_to_pb(standing.topics),
        degraded=degraded_to_pb(standing.degraded),
        successor=standing.successor,
        granted_to=standing.granted_to,
        filling=standing.is_filling,
        filled_epoch=standing.filled_in,
        seeks_place=bool(standing.seeks_place),  # a node knows of itself whether it does
        hands_over=standing.hands_over,
        witnessed_epoch=standing.witnessed,
        known=openings_to_pb(standing.known),
        holds=holds_to_pb(standing.holds),
    )


def standing(response: pb.DescribeReplicaResponse) -> Standing:
    """Checked as a lineage, degraded ranges and holds are."""
    return Standing(
        node=response.node,
        node_id=node_id_from_pb("node_id", response.node_id),
        wire_id=node_id_from_pb("broker_id", response.broker_id),
        replica_uuid=response.replica_uuid,
        stance=_stance(response.stance),
        lineage=lineage_from_pb(list(response.lineage)),
        end=PhysicalOffset(response.end_offset),
        confirmed=PhysicalOffset(response.confirmed_offset),
        granted=epoch_from_pb("granted_epoch", response.granted_epoch),
        stepped_down_at=PhysicalOffset(response.stepped_down_offset) if response.HasField("stepped_down_offset") else None,
        rules=_rules(response.rules),
        topics=version_from_pb(response.topics),
        degraded=degraded_from_pb(response.degraded),
        successor=response.successor,
        granted_to=node_id_from_pb("granted_to", response.granted_to) if response.HasField("granted_to") else None,
        is_filling=response.filling,
        filled_in=epoch_from_pb("filled_epoch", response.filled_epoch),
        seeks_place=response.seeks_place if response.HasField("seeks_place") else None,
        hands_over=response.hands_over,
        witnessed=epoch_from_pb("witnessed_epoch", response.witnessed_epoch),
        known=openings_from_pb("known", response.known),
        holds=holds_from_pb("holds", response.holds),
    )


def announcement(opening: Opening, cluster: str, broker: str) -> pb.AnnounceEpochRequest:
    """As it is."""
    return pb.AnnounceEpochRequest(cluster=cluster, broker=broker, epoch=opening.epoch, opener_id=opening.opener_id)


def announced(request: pb.AnnounceEpochRequest) -> Opening:
    """Checked: an epoch that can be opened, and by a node."""
    if request.epoch < 1:
        raise InvalidField("epoch", f"{request.epoch:,} is none that can be opened; they count from 1")
    return Opening(epoch_from_pb("epoch", request.epoch), node_id_from_pb("opener_id", request.opener_id))


def known_to_pb(known: KnownBefore) -> pb.AnnounceEpochResponse:
    """As it is."""
    newest = known.newest
    return pb.AnnounceEpochResponse(stance=_PB_STANCE[known.stance], epoch=newest.epoch, opener_id=newest.opener_id)


def known(response: pb.AnnounceEpochResponse) -> KnownBefore:
    """Checked: an epoch."""
    opener_id = node_id_from_pb("opener_id", response.opener_id) if response.HasField("opener_id") else None
    return KnownBefore(_stance(response.stance), Opening(epoch_from_pb("epoch", response.epoch), opener_id))


def step_down_request(order: StepDownOrder, cluster: str, broker: str) -> pb.StepDownRequest:
    """As it is; what is only to be validated leaves no time for it: a master that does not know of that refuses, and does not step down."""
    return pb.StepDownRequest(
        cluster=cluster,
        broker=broker,
        successor=order.successor,
        replica_uuid=order.replica_uuid,
        broker_id=order.wire_id,
        topics=version_to_pb(order.topics),
        timeout_ms=0 if order.validate_only else round(order.timeout_s * 1000),
        client_address=order.clients,
        validate_only=order.validate_only,
    )


def step_down_order(request: pb.StepDownRequest) -> StepDownOrder:
    """Checked: an id that a slave may have, and a time that producers may be kept waiting."""
    if not 1 <= request.broker_id <= MAX_NODE_ID:
        raise InvalidField("broker_id", f"{request.broker_id} is no slave's; it is 1 or more, and at most {MAX_NODE_ID:,}")
    if not request.validate_only and not 1 <= request.timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidField("timeout_ms", f"{request.timeout_ms:,} is outside 1 to {MAX_TIMEOUT_MS:,}")
    return StepDownOrder(
        request.successor,
        request.replica_uuid,
        request.broker_id,
        version_from_pb(request.topics),
        request.timeout_ms / 1000,
        request.client_address,
        request.validate_only,
    )


def stepped_down_to_pb(stepped: SteppedDown) -> pb.StepDownResponse:
    """As it is."""
    degraded = degraded_to_pb(stepped.degraded)
    known = openings_to_pb(stepped.known)
    return pb.StepDownResponse(
        end_offset=stepped.end, in_sync=stepped.in_sync, degraded=degraded, witnessed_epoch=stepped.witnessed, known=known
    )


def stepped_down(response: pb.StepDownResponse) -> SteppedDown:
    """Checked: an epoch, and degraded ranges."""
    end, witnessed = PhysicalOffset(response.end_offset), epoch_from_pb("witnessed_epoch", response.witnessed_epoch)
    known = openings_from_pb("known", response.known)
    return SteppedDown(end, tuple(response.in_sync), degraded_from_pb(response.degraded), witnessed, known)


def _stance(number: pb.ReplicaStance) -> Stance:
    if number not in _STANCE:
        raise InvalidField("stance", f"{number} is none; the other node is of another version")
    return _STANCE[number]


def _rules_to_pb(rules: GroupRules) -> pb.GroupRules:
    return pb.GroupRules(
        mode=rules.mode,
        replicas_expected=rules.replicas_expected,
        in_sync_replicas=rules.in_sync_replicas,
        min_in_sync_replicas=rules.min_in_sync_replicas,
        flush_mode=rules.flush_mode or "",
        release_level=rules.release_level or "",
    )


def _rules(rules: pb.GroupRules) -> GroupRules:
    return GroupRules(
        rules.mode,
        rules.replicas_expected,
        rules.in_sync_replicas,
        rules.min_in_sync_replicas if rules.HasField("min_in_sync_replicas") else None,
        rules.flush_mode or None,
        rules.release_level or None,
    )
