"""Which of the two services a node is now: its configuration says it at first, and a role change over it from then on (`dittomq/role`).

Role is a process, not a flag: a process that finds that it should be the other service drains, closes its store, and lives on as that one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dittomq.broker import home
from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.state import identity
from dittomq.errors import ConfigError, DiskFull, DittoError, StoreFailed, UnreadableStore
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.replication.master_log import AS_CONFIGURED, Succession
from dittomq.routes import Opening

_NAME: Final = "role"
_KIND: Final = b"ROLE"


class BrokerService(StrEnum):
    """What a broker process can be."""

    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Of which epochs of others a master knows all that was confirmed, as a grant says it: see `Succession`. `known`: (epoch, opener)."""

    witnessed: Epoch = NO_EPOCH
    known: tuple[tuple[int, int], ...] = ()

    @property
    def openings(self) -> tuple[Opening, ...]:
        """What is `known`."""
        return tuple(Opening(Epoch(epoch), opener) for epoch, opener in self.known)


def knowledge(witnessed: Epoch, known: Iterable[Opening] = ()) -> Knowledge:
    """The same of openings."""
    return Knowledge(witnessed, tuple((each.epoch, each.opener_id) for each in known if each.opener_id is not None))


@dataclass(frozen=True, slots=True)
class Grant:
    """What the last role change decided for a node.

    `broker_id` is a slave's id on the wire. A master's is 0; here it is the one that it gave up to the node it changed places with.
    A master opens no epoch below `epoch`; for a slave it is the newest one it knew of when it became one. `other` is the configured name,
    "a/0", of the node that it changed places with. `end` is where its log ended then. `accepted_loss`: what the operator gave up, so that
    it may lead without it; empty for nothing. What was confirmed in epochs up to `witnessed` was known, or given up, when it was granted,
    and in those up to each of `known`: see `Knowledge`. `is_noted`: so many nodes had noted `epoch` for it that too few were left to
    confirm anything with somebody else in an epoch of that number. Up to `filled_in`, and `other_filled_in`, this node, and `other`, may
    have led on an earlier disk: see `Succession`.
    """

    service: BrokerService
    broker_id: int
    epoch: Epoch
    other: str
    end: PhysicalOffset
    accepted_loss: str = ""
    witnessed: Epoch = NO_EPOCH
    is_noted: bool = False
    known: tuple[tuple[int, int], ...] = ()
    filled_in: Epoch = NO_EPOCH
    other_filled_in: Epoch = NO_EPOCH

    @property
    def knowledge(self) -> Knowledge:
        """Of which epochs of others it knew all."""
        return Knowledge(self.witnessed, self.known)

    @property
    def wire_id(self) -> int:
        """The node's broker id in registrations and routes."""
        return 0 if self.service is BrokerService.MASTER else self.broker_id


@dataclass(eq=False)
class ComeBack(DittoError):
    """This process has drained and closed its store, and must come back on it as `service`, which may be what it was.

    `served`: it had opened its store before; otherwise it still starts.
    """

    service: BrokerService
    why: str
    served: bool = False

    def __str__(self) -> str:
        return f"comes back as {self.service}: {self.why}"


def load_grant(storage: Storage) -> Grant | None:
    """What the last role change decided; None when there was none. Raises UnreadableStore when it cannot be known."""
    try:
        return side_file.load_json(storage, _NAME, _KIND, Grant)
    except side_file.DamagedSideFile as damaged:
        remedy = "make sure that no other node leads its group, then delete that file to start as configured"
        raise UnreadableStore(side_file.FOLDER, f"{damaged}; {remedy}") from damaged


def succession_of(grant: Grant | None) -> Succession:
    """How a master that has this grant came to its place."""
    if grant is None:
        return AS_CONFIGURED
    _, _, other = grant.other.rpartition("/")
    came = grant.epoch, int(other) if other else None, grant.witnessed, grant.knowledge.openings
    return Succession(*came, grant.filled_in, grant.other_filled_in)


def check_room(storage: Storage, node: str, needed: int) -> None:
    """Raise DiskFull, before anything is changed, unless `needed` bytes are free on the disk of `node`."""
    free = storage.free_bytes()
    if free < needed:
        raise DiskFull(node, free, needed)


def save_grant(storage: Storage, grant: Grant) -> None:
    """Durably write down what was decided, before anybody acts upon it. A StoreFailed leaves open whether it was.

    From then on versions that know no role changes refuse the store: they would start it as configured. Nobody cuts the log meanwhile.
    """
    try:
        identity.raise_format(storage, identity.SECOND_FORMAT)
        side_file.save_json(storage, _NAME, _KIND, {name: getattr(grant, name) for name in Grant.__slots__})
    except OSError as error:
        raise StoreFailed("replace", f"{side_file.FOLDER}/{_NAME}", str(error)) from error


def own_grant(storage: Storage, service: BrokerService, configured_id: int) -> Grant | None:
    """What the last role change decided for a node that starts as `service`; None when it starts as configured.

    Raises ComeBack when it decided for the other service, ConfigError when there was none and the configuration is the other's, or when
    there was one and the disk is started under another id than the node had: it decided for the node of that name.
    """
    grant = load_grant(storage)
    last_id = None if grant is None else home.last_id(storage)
    if last_id is not None and last_id != configured_id:
        remedy = f"set it to {last_id}, which is this node's name whoever leads, or mount this node's own disk"
        raise ConfigError("node.broker_id", f"is {configured_id}, and this disk had {last_id} when its role was changed; {remedy}")
    if grant is not None and grant.service is not service:
        raise ComeBack(grant.service, f"its role was changed in epoch {grant.epoch}")
    if grant is None and service is BrokerService.MASTER and configured_id != 0:
        raise ConfigError("node.broker_id", f"is {configured_id}, and the master of a new group has 0; start this node as a slave")
    if grant is None and service is BrokerService.SLAVE and configured_id == 0:
        remedy = (
            "start an old master as one, with `dittomq serve master`: it becomes a slave by itself; give any other slave a number above 0"
        )
        raise ConfigError("node.broker_id", f"is 0, the first master's; {remedy}")
    return grant
