"""Configuration tables that masters and slaves read alike. Each field says its unit, its default and what it is for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from dittomq.commitlog.retention import RetentionRules

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


@dataclass(frozen=True, slots=True)
class RetentionTable:
    """What goes of the beginning of the log, in whole files. Everything is kept unless one of the rules is set."""

    max_age_ms: Annotated[
        int,
        Meta(
            ge=0, description="files go whose newest message was stored longer ago; 0: age is no reason. RocketMQ: fileReservedTime, 72 h"
        ),
    ] = 0
    max_used_percent: Annotated[
        int,
        Meta(ge=0, le=99, description="the oldest files go while more of the disk is used; 0: no limit. RocketMQ: diskMaxUsedSpaceRatio"),
    ] = 0
    forced_used_percent: Annotated[
        int,
        Meta(
            ge=0, le=99, description="above it they go even if a slave or an audit still wants them; 0: never. RocketMQ: cleanFileForcibly"
        ),
    ] = 0
    check_period_ms: Annotated[Milliseconds, Meta(description="how often that is looked at. RocketMQ: cleanResourceInterval")] = 10_000

    @property
    def rules(self) -> RetentionRules:
        """What the decider needs of the settings."""
        return RetentionRules(self.max_age_ms, self.max_used_percent, self.forced_used_percent)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each setting that breaks a rule between settings, and what to change."""
        if 0 < self.forced_used_percent < self.max_used_percent:
            yield (
                "retention.forced_used_percent",
                f"{self.forced_used_percent} is less than the {self.max_used_percent} of max_used_percent; raise it",
            )


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
