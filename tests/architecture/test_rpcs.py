import ast
import re

import pytest
from google.protobuf.descriptor import ServiceDescriptor

from dittomq._pb.ditto.access.v1 import access_pb2
from dittomq._pb.ditto.admin.v1 import admin_pb2, groups_pb2
from dittomq._pb.ditto.audit.v1 import audit_pb2
from dittomq._pb.ditto.coordination.v1 import coordination_pb2
from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2, messaging_pb2, transactions_pb2
from dittomq._pb.ditto.metadata.v1 import metadata_pb2
from dittomq._pb.ditto.naming.v1 import naming_pb2
from dittomq._pb.ditto.replication.v1 import election_pb2, replication_pb2
from tests.support.tree import ROOT, files

_SERVICES: list[ServiceDescriptor] = [
    service
    for module in (
        *(admin_pb2, audit_pb2, consumer_groups_pb2, coordination_pb2, election_pb2, groups_pb2),
        *(messaging_pb2, metadata_pb2, naming_pb2, replication_pb2, transactions_pb2),
    )
    for service in module.DESCRIPTOR.services_by_name.values()
]
_SOURCES = [(ROOT / path).read_text(encoding="utf-8") for path in files(".py") if path.parts[0] in {"dittomq", "services"}]
_CLASSES = [node for source in _SOURCES if "Servicer" in source for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def test_every_service_of_the_proto_files_is_looked_at() -> None:
    protos = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in files(".proto") if path.parts[1] == "ditto")
    written = re.findall(r"^service (\w+)", protos, re.MULTILINE)

    assert sorted(service.name for service in _SERVICES) == sorted(written)


@pytest.mark.parametrize("service", _SERVICES, ids=lambda service: service.full_name)
def test_every_rpc_is_answered_by_a_servicer_that_some_server_registers(service: ServiceDescriptor) -> None:
    promised = {method.name for method in service.methods}

    assert promised - _methods_of_servicers(f"{service.name}Servicer") == set()
    assert any(f"add_{service.name}Servicer_to_server" in source for source in _SOURCES)


@pytest.mark.parametrize("service", _SERVICES, ids=lambda service: service.full_name)
def test_every_rpc_names_the_role_that_it_needs(service: ServiceDescriptor) -> None:
    unnamed = [method.name for method in service.methods if not method.GetOptions().Extensions[access_pb2.role]]

    assert unnamed == []


def _methods_of_servicers(base: str) -> set[str]:
    """Methods of all classes that derive from `base`, through others of ours too."""
    bases, servicers = {base}, []
    for _ in range(3):  # no servicer is further from its base
        servicers = [found for found in _CLASSES if any(ast.unparse(parent).rpartition(".")[2] in bases for parent in found.bases)]
        bases |= {found.name for found in servicers}
    return {part.name for found in servicers for part in found.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
