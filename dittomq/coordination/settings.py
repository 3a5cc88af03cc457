"""Where the group record is kept, as configuration says."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta


class CoordinationBackend(StrEnum):
    """What keeps the group record."""

    NAMESERVER = "nameserver"
    ETCD = "etcd"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class CoordinationTable:
    """Where the group record is kept. The same on every node of a group."""

    backend: Annotated[
        CoordinationBackend, Meta(description="nameserver: for one machine, tests and small sites; etcd or kubernetes: for production")
    ] = CoordinationBackend.NAMESERVER
    endpoints: Annotated[
        tuple[str, ...],
        Meta(
            description='"host:port" of the one nameserver that keeps it (default: the first of node.nameservers), of the members of etcd, '
            "or of the Kubernetes API (default: that of the cluster that this node runs in)"
        ),
    ] = ()
    prefix: Annotated[str, Meta(max_length=200, description="etcd: keys begin with it")] = "/dittomq"
    namespace: Annotated[
        str, Meta(max_length=63, description="kubernetes: namespace of the Leases; empty: the one that this node runs in")
    ] = ""
    pod: Annotated[
        str,
        Meta(max_length=253, description="kubernetes: this node's pod, whose label dittomq/role shows its role; empty: none does"),
    ] = ""
    username: Annotated[str, Meta(max_length=200, description="etcd: user; empty: no authentication")] = ""
    password_file: Annotated[str, Meta(description="etcd: file that holds the password of that user")] = ""
    token_file: Annotated[str, Meta(description="kubernetes: file that holds the bearer token; empty: that of the service account")] = ""
    ca_file: Annotated[
        str,
        Meta(description="certificate authority of the endpoints, PEM; empty: plain text for etcd, the service account's for kubernetes"),
    ] = ""
    certificate_file: Annotated[str, Meta(description="client certificate, PEM")] = ""
    key_file: Annotated[str, Meta(description="key of the client certificate, PEM")] = ""
