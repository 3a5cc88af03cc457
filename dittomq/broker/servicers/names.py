"""Services as a server takes them: the full name from the descriptor, and the call that adds the servicer."""

from functools import partial

from dittomq._pb.ditto.admin.v1 import admin_pb2, admin_pb2_grpc, groups_pb2, groups_pb2_grpc
from dittomq._pb.ditto.audit.v1 import audit_pb2, audit_pb2_grpc
from dittomq._pb.ditto.messaging.v1 import (
    consumer_groups_pb2,
    consumer_groups_pb2_grpc,
    messaging_pb2,
    messaging_pb2_grpc,
    transactions_pb2,
    transactions_pb2_grpc,
)
from dittomq._pb.ditto.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from dittomq._pb.ditto.replication.v1 import election_pb2, election_pb2_grpc, replication_pb2, replication_pb2_grpc
from dittomq.rpc.server import Service


def messaging(servicer: messaging_pb2_grpc.MessagingServiceServicer) -> Service:
    """ditto.messaging.v1.MessagingService."""
    name = messaging_pb2.DESCRIPTOR.services_by_name["MessagingService"].full_name
    return Service(name, partial(messaging_pb2_grpc.add_MessagingServiceServicer_to_server, servicer))


def metadata(servicer: metadata_pb2_grpc.MetadataServiceServicer) -> Service:
    """ditto.metadata.v1.MetadataService."""
    name = metadata_pb2.DESCRIPTOR.services_by_name["MetadataService"].full_name
    return Service(name, partial(metadata_pb2_grpc.add_MetadataServiceServicer_to_server, servicer))


def topics(servicer: admin_pb2_grpc.TopicServiceServicer) -> Service:
    """ditto.admin.v1.TopicService."""
    name = admin_pb2.DESCRIPTOR.services_by_name["TopicService"].full_name
    return Service(name, partial(admin_pb2_grpc.add_TopicServiceServicer_to_server, servicer))


def groups(servicer: groups_pb2_grpc.GroupServiceServicer) -> Service:
    """ditto.admin.v1.GroupService."""
    name = groups_pb2.DESCRIPTOR.services_by_name["GroupService"].full_name
    return Service(name, partial(groups_pb2_grpc.add_GroupServiceServicer_to_server, servicer))


def consumer_groups(servicer: consumer_groups_pb2_grpc.ConsumerGroupServiceServicer) -> Service:
    """ditto.messaging.v1.ConsumerGroupService."""
    name = consumer_groups_pb2.DESCRIPTOR.services_by_name["ConsumerGroupService"].full_name
    return Service(name, partial(consumer_groups_pb2_grpc.add_ConsumerGroupServiceServicer_to_server, servicer))


def transactions(servicer: transactions_pb2_grpc.TransactionServiceServicer) -> Service:
    """ditto.messaging.v1.TransactionService."""
    name = transactions_pb2.DESCRIPTOR.services_by_name["TransactionService"].full_name
    return Service(name, partial(transactions_pb2_grpc.add_TransactionServiceServicer_to_server, servicer))


def broker(servicer: admin_pb2_grpc.BrokerServiceServicer) -> Service:
    """ditto.admin.v1.BrokerService."""
    name = admin_pb2.DESCRIPTOR.services_by_name["BrokerService"].full_name
    return Service(name, partial(admin_pb2_grpc.add_BrokerServiceServicer_to_server, servicer))


def audit(servicer: audit_pb2_grpc.AuditServiceServicer) -> Service:
    """ditto.audit.v1.AuditService."""
    name = audit_pb2.DESCRIPTOR.services_by_name["AuditService"].full_name
    return Service(name, partial(audit_pb2_grpc.add_AuditServiceServicer_to_server, servicer))


def replication(servicer: replication_pb2_grpc.ReplicationServiceServicer) -> Service:
    """ditto.replication.v1.ReplicationService."""
    name = replication_pb2.DESCRIPTOR.services_by_name["ReplicationService"].full_name
    return Service(name, partial(replication_pb2_grpc.add_ReplicationServiceServicer_to_server, servicer))


def elections(servicer: election_pb2_grpc.ElectionServiceServicer) -> Service:
    """ditto.replication.v1.ElectionService."""
    name = election_pb2.DESCRIPTOR.services_by_name["ElectionService"].full_name
    return Service(name, partial(election_pb2_grpc.add_ElectionServiceServicer_to_server, servicer))
