"""Configuration tables that masters and slaves read alike. Each field says its unit, its default and what it is for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-zA-Z0-9_.-]+$")]


@dataclass(frozen=True, slots=True)
class ListenTable:
    """Where a broker listens, "host:port"; port 0 takes a free one."""

    clients: Annotated[str, Meta(description="clients: publishing, reading, administration, audit")] = "0.0.0.0:10911"
    replication: Annotated[str, Meta(description="replicas only")] = "0.0.0.0:10912"
    ops: Annotated[str, Meta(description="plain HTTP: /metrics /startupz /readyz /livez")] = "0.0.0.0:10914"


@dataclass(frozen=True, slots=True)
class StoreTable:
    """The store on disk."""

    segment_bytes: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="size of a commit log file; cannot be changed later. RocketMQ: mappedFileSizeCommitLog"),
    ] = 1 << 30
    reserve_bytes: Annotated[
        int, Meta(ge=0, description="writes are refused when an append would leave less room than this on the disk")
    ] = 256 * 1024 * 1024


Addresses = Annotated[
    Mapping[str, str], Meta(description='addresses by network name, "host:port"; "default" is what brokers and most clients use')
]


def no_addresses() -> Mapping[str, str]:
    """Nothing advertised: the listening address is used, with the host name for a wildcard."""
    return {}


@dataclass(frozen=True, slots=True)
class ReadingTable:
    """Reading."""

    master_gone_ms: Annotated[
        Milliseconds, Meta(description="silence of the master after which a slave serves all it has flushed, marking what may be undone")
    ] = 30_000
