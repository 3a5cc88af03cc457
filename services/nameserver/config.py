"""Configuration of a nameserver."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from dittomq.security.settings import AccessTable, TlsTable

Address = Annotated[str, Meta(pattern=r"^\[?[a-zA-Z0-9_.:-]+\]?:[0-9]{1,5}$")]


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Who this nameserver speaks for."""

    cluster: Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,127}$", description="name of the cluster; brokers of another are refused")] = (
        "dittomq"
    )
    data_dir: Annotated[str, Meta(min_length=1, description="folder of its own, for values and group records of its cluster")] = "/data"


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """Where it listens."""

    clients: Annotated[Address, Meta(description="brokers and clients")] = "0.0.0.0:9876"
    ops: Annotated[Address, Meta(description="plain HTTP: /metrics /startupz /readyz /livez")] = "0.0.0.0:9877"


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """How long silence is forgiven."""

    broker_expiry_ms: Annotated[int, Meta(ge=100, le=3_600_000, description="a broker that is silent for so long is forgotten")] = 30_000
    scan_period_ms: Annotated[int, Meta(ge=10, le=600_000, description="how often silent brokers are looked for")] = 1_000


@dataclass(frozen=True, slots=True)
class NameserverConfig:
    """A nameserver's whole configuration."""

    node: NodeConfig = field(default_factory=NodeConfig)
    listen: ListenConfig = field(default_factory=ListenConfig)
    registry: RegistryConfig = field(default_factory=RegistryConfig)
    tls: TlsTable = field(default_factory=TlsTable)
    access: AccessTable = field(default_factory=AccessTable)

    def problems(self) -> Iterable[tuple[str, str]]:
        """Broken rules between keys."""
        if self.registry.scan_period_ms > self.registry.broker_expiry_ms:
            yield "registry.scan_period_ms", f"is longer than registry.broker_expiry_ms ({self.registry.broker_expiry_ms:,}); shorten it"
        yield from self.tls.problems()
        yield from self.access.problems()
