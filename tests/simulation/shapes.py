"""How the groups of the runs are configured: copies, flushing, acknowledgement and sizes vary with the seed."""

import random
from dataclasses import dataclass, replace
from typing import Any, Self

from dittomq.broker.config import FailoverMode, FailoverTable, RetentionTable, StoreTable
from services.master.config import FlushMode, MasterConfig, Mode, NodeTable, ReplicaAckLevel, ReplicationTable
from services.nameserver.config import RegistryConfig
from services.slave.config import SlaveConfig
from tests.simulation.faults import Machines
from tests.simulation.limits import Limits

NAMESERVER = "ns:9876"
PUBLISHERS = ("p0", "p1")
SUBSCRIBER = "r0"
MIN_FREE_BYTES = 256 * 1024
_SMALL_SEGMENT = 16_384
_KEPT_MS = 8_000
_HELD_SEGMENTS = 2
_FEW_PRODUCERS = 2
_MANUAL = 0.2  # of the groups
_MANY_MESSAGES = 0.08  # of the runs: frames of so many that they are encoded by columns without lowered limits
_TAGGED = 0.3
_REMAKES = 0.2
_INTERLEAVED = 0.15
_EXPIRES_SOON = 0.3  # of the runs: nameservers forget a node before most faults end
_SOON_MS = 6_000
_PERIODS_IN_EXPIRY = 3
_SKEW_S = 4.5  # clocks of two nodes differ by 4 s at most


@dataclass(frozen=True, slots=True)
class Publishing:
    """What clients publish: how many messages at a time, padded with how many bytes, and whether with tags and keys.

    `remakes`: also to a topic that somebody deletes and makes again.
    """

    frames: tuple[int, ...] = (1, 1, 3, 12)
    paddings: tuple[int, ...] = (0, 10, 700, 5_000)
    is_tagged: bool = False
    remakes: bool = False

    def __str__(self) -> str:
        frames = f"{min(self.frames)} to {max(self.frames)} messages a frame"
        return f"{frames}{', tagged' if self.is_tagged else ''}{', a topic made again' if self.remakes else ''}"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the group is configured, and what its clients publish. `limits` are no settings, but runs can reach them.

    `is_interleaved`: whatever changes a store is stopped in the middle of a call, and others go on meanwhile.
    """

    slaves: int
    replication: ReplicationTable
    slave_flush: FlushMode
    segment_bytes: int = 65_536
    retention: RetentionTable = RetentionTable()  # noqa: RUF009  # a value, and frozen
    limits: Limits = Limits()  # noqa: RUF009  # a value, and frozen
    publishing: Publishing = Publishing()  # a value, and frozen
    is_interleaved: bool = False
    names: RegistryConfig = RegistryConfig()  # noqa: RUF009  # a value, and frozen
    nameservers: tuple[str, ...] = (NAMESERVER,)
    failover: FailoverTable = FailoverTable(mode=FailoverMode.MANUAL)  # noqa: RUF009  # a value, and frozen

    def __str__(self) -> str:
        table, told = self.replication, f"{self._group}, {self.limits}, {self.publishing}"
        told += ", interleaved" if self.is_interleaved else ""
        if self.retention.max_age_ms:
            told += f", kept for {self.retention.max_age_ms:,} ms, held for {table.max_slot_bytes:,} bytes"
        return told

    @property
    def _group(self) -> str:
        table = self.replication
        copies = f"{self.slaves} slaves, {table.asked_copies} copies asked, {table.min_in_sync_replicas} at least"
        failover = f"failover {self.failover.mode}"
        return (
            f"{table.mode}, {copies}, {table.flush_mode}, {table.replica_ack_level}, {failover}, segments of {self.segment_bytes:,} bytes"
        )

    @property
    def is_manual(self) -> bool:
        """Whether only an operator lets another node lead."""
        return self.failover.mode is FailoverMode.MANUAL

    @property
    def sends_in_pieces(self) -> bool:
        """Whether slaves get frames in parts, and another node leads when that matters."""
        return self.slaves > 1 and not self.is_manual and self.limits.chunk_bytes < Limits().chunk_bytes

    @property
    def syncs_matter(self) -> bool:
        """Whether only what is flushed is confirmed."""
        return self.replication.flush_mode is FlushMode.SYNC_FLUSH

    @property
    def needs_no_operator(self) -> bool:
        """Whether what is confirmed is on more than one disk, or on that of a node that synced it, so that nobody need accept its loss."""
        return self._all_sync and self.replication.asked_copies > 1 and self._confirms_what_copies_flushed

    @property
    def disks_of_confirmed(self) -> int:
        """Of so many members each holds on its disk what is confirmed, unless there are fewer; 0 where nothing says so."""
        return self.replication.asked_copies if self._confirms_what_copies_flushed else int(self._all_sync)

    @property
    def _all_sync(self) -> bool:
        """Whether every node that may come to lead confirms only what it has flushed: its own setting says so."""
        return self.syncs_matter and (not self.slaves or self.slave_flush is FlushMode.SYNC_FLUSH)

    @property
    def _confirms_what_copies_flushed(self) -> bool:
        table = self.replication
        alone = table.asked_copies == 1 and not self._all_sync  # then a master may confirm what it has written
        return table.mode is Mode.SYNC_MASTER and table.replica_ack_level is ReplicaAckLevel.FLUSHED and not alone

    @property
    def brokers(self) -> tuple[str, ...]:
        """The machines of the group, the master's first."""
        return tuple(f"a{number}" for number in range(self.slaves + 1))

    @property
    def machines(self) -> Machines:
        """Who can be hit by faults."""
        return Machines(self.brokers, "ns", (*PUBLISHERS, SUBSCRIBER))

    @property
    def name_machines(self) -> tuple[str, ...]:
        """The machines of the nameservers."""
        return tuple(each.partition(":")[0] for each in self.nameservers)

    @property
    def store(self) -> StoreTable:
        """Of every broker."""
        return StoreTable(segment_bytes=self.segment_bytes, min_free_bytes=MIN_FREE_BYTES)

    def undegraded(self) -> Self:
        """The same, but refusing what cannot be on as many copies as asked."""
        return replace(self, replication=replace(self.replication, min_in_sync_replicas=self.replication.asked_copies))

    def forgetting(self) -> Self:
        """The same, but the log is dropped after a while, and held for slaves only a little."""
        held = replace(self.replication, max_slot_bytes=_HELD_SEGMENTS * _SMALL_SEGMENT)
        dropped = RetentionTable(max_age_ms=_KEPT_MS, check_period_ms=1_000)
        return replace(self, segment_bytes=_SMALL_SEGMENT, replication=held, retention=dropped)

    def expiring_soon(self, chance: random.Random) -> Self:
        """The same, or with nameservers that forget a node sooner."""
        return replace(self, names=RegistryConfig(broker_expiry_ms=_SOON_MS)) if chance.random() < _EXPIRES_SOON else self

    def remembering_few(self) -> Self:
        """The same, but producers are forgotten all the time: clients have more of them."""
        return replace(self, limits=replace(self.limits, producers=_FEW_PRODUCERS))

    @property
    def kept_s(self) -> float:
        """A message is kept for so long at the least, by any clock."""
        return self.retention.max_age_ms / 1_000 - _SKEW_S

    def leading(self, machine: str, number: int) -> MasterConfig:
        """Configuration of this machine as a master."""
        return MasterConfig(**self._tables(machine, number))

    def following(self, machine: str, number: int) -> SlaveConfig:
        """Configuration of this machine as a slave."""
        return SlaveConfig(**self._tables(machine, number))

    def _tables(self, machine: str, number: int) -> dict[str, Any]:
        replication = self.replication if number == 0 else replace(self.replication, flush_mode=self.slave_flush)
        return {
            "node": NodeTable(
                broker_id=number,
                nameservers=self.nameservers,
                registration_period_ms=self.names.broker_expiry_ms // _PERIODS_IN_EXPIRY,
            ),
            "advertise": {"default": f"{machine}:10911"},
            "advertise_replication": {"default": f"{machine}:10912"},
            "store": self.store,
            "retention": self.retention,
            "replication": replication,
            "failover": self.failover,
        }


def name_of(machine: str) -> str:
    """The broker's name, "a/0", of the machine a0."""
    return f"{machine[0]}/{machine[1:]}"


def machine_of(node: str) -> str:
    """The machine a0 of the node "a/0"."""
    return node.replace("/", "")


def shape(chance: random.Random) -> Shape:
    """Mostly two slaves, all flushed; now and then something weaker, stricter, smaller or larger."""
    slaves = chance.choice((0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3))
    asynchronous = chance.random() < 0.15
    lazy = chance.random() < 0.15
    copies = min(slaves + 1, 2)
    if slaves and chance.random() < 0.3:
        copies = chance.randint(1, slaves + 1)
    replication = ReplicationTable(
        mode=Mode.ASYNC_MASTER if asynchronous else Mode.SYNC_MASTER,
        replicas_expected=slaves,
        in_sync_replicas=0 if asynchronous else copies,
        min_in_sync_replicas=1 if asynchronous else chance.choice((1, 1, copies, chance.randint(1, copies))),
        flush_mode=FlushMode.ASYNC_FLUSH if lazy else FlushMode.SYNC_FLUSH,
        replica_ack_level=ReplicaAckLevel.RECEIVED if lazy or chance.random() < 0.1 else ReplicaAckLevel.FLUSHED,
    )
    segment_bytes = chance.choice((_SMALL_SEGMENT, 65_536))
    replication, slave_flush = _unusual(chance, slaves, replication)
    failover = FailoverTable(mode=FailoverMode.MANUAL if chance.random() < _MANUAL else FailoverMode.AUTOMATIC)
    return Shape(slaves, replication, slave_flush, segment_bytes, failover=failover)


def is_interleaved(chance: random.Random) -> bool:
    """Of a few runs: it costs much."""
    return chance.random() < _INTERLEAVED


def publishing(chance: random.Random) -> Publishing:
    """Mostly a few messages at a time; now and then hundreds."""
    plain = Publishing(is_tagged=chance.random() < _TAGGED, remakes=chance.random() < _REMAKES)
    return replace(plain, frames=(1, 3, 40, 130), paddings=(0, 10, 60)) if chance.random() < _MANY_MESSAGES else plain


def _unusual(chance: random.Random, slaves: int, replication: ReplicationTable) -> tuple[ReplicationTable, FlushMode]:
    """Rarely, what is allowed and seldom wanted: slaves that flush otherwise than their master."""
    if replication.flush_mode is FlushMode.ASYNC_FLUSH and chance.random() < 0.3:
        replication = replace(replication, replica_ack_level=ReplicaAckLevel.FLUSHED)
    others = [mode for mode in FlushMode if mode is not replication.flush_mode]
    return replication, chance.choice(others) if slaves and chance.random() < 0.05 else replication.flush_mode
