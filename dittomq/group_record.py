"""The group record: epoch, master and members of one broker group, as the coordination store keeps it.

`docs/replication.md` says what it means. It is one small JSON document (`encode`, `decode`), changed by compare-and-set only.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final, Self

import msgspec
from msgspec import Meta

from dittomq.errors import UnreadableRecord
from dittomq.offsets import LAST_EPOCH, NO_EPOCH, Epoch

RECORD_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 64 * 1024
MAX_MEMBERS: Final = 64


@dataclass(frozen=True, slots=True, order=True)
class ReplicaId:
    """One store that lost nothing since this incarnation began. Both parts are random hex numbers; "" where nothing was drawn yet.

    A replica that may have lost bytes which it acknowledged draws a new incarnation: then it is a stranger to its group.
    """

    uuid: str
    incarnation: str

    def __str__(self) -> str:
        return f"{self.uuid}.{self.incarnation}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of `str`. What is behind the first dot is the incarnation; none is fine."""
        uuid, _, incarnation = text.partition(".")
        return cls(uuid, incarnation)


NO_REPLICA: Final = ReplicaId("", "")


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A replica of the in-sync set. `node` is "broker/id" as configured, `address` its replication port as "host:port"."""

    node: str
    replica: ReplicaId
    address: str


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One version of the record.

    `birth` names the record's life: who knows another one obeys nothing of this. `revision` grows by one with each write. `members` are in
    the order of their nodes, the master among them. `copies` is what the master is configured to ask for; it counts. `write` is random: a
    writer recognises its own write.
    """

    birth: str
    epoch: Epoch
    revision: int
    master: ReplicaId
    members: tuple[Member, ...]
    copies: int
    paused: bool = False
    write: str = ""

    @property
    def ids(self) -> frozenset[ReplicaId]:
        """The members' replica ids."""
        return frozenset(member.replica for member in self.members)

    @property
    def needed(self) -> int:
        """So many members hold what is confirmed; the master counts."""
        return needed_of(self.members, self.copies)

    @property
    def election_quorum(self) -> int:
        """So many members, or any set with the master, have one that holds whatever was confirmed."""
        return len(self.members) - self.needed + 1

    @property
    def master_node(self) -> str:
        """ "broker/id" of the master, as configured."""
        return next(member.node for member in self.members if member.replica == self.master)

    @property
    def master_address(self) -> str:
        """Its replication port, "host:port"."""
        return next(member.address for member in self.members if member.replica == self.master)

    def member(self, replica: ReplicaId) -> Member | None:
        """The member with that id, if it is one."""
        return next((member for member in self.members if member.replica == replica), None)

    def member_of_node(self, node: str) -> Member | None:
        """The member under that node name, if there is one."""
        return next((member for member in self.members if member.node == node), None)

    def is_quorum(self, replicas: Collection[ReplicaId]) -> bool:
        """Whether these replicas, as far as they are members, are an election quorum."""
        answering = self.ids & frozenset(replicas)
        return self.master in answering or len(answering) >= self.election_quorum

    def next(self, write: str, **changes: object) -> Self:
        """The record that a writer who read this one writes next."""
        return replace(self, revision=self.revision + 1, write=write, **changes)  # type: ignore[arg-type]


def needed_of(members: Collection[object], copies: int) -> int:
    """Of so many members so many must hold what is confirmed."""
    return min(copies, len(members))


def in_order(members: Iterable[Member]) -> tuple[Member, ...]:
    """As a record holds them."""
    return tuple(sorted(members))


_Text = Annotated[str, Meta(max_length=1_024)]
_Count = Annotated[int, Meta(ge=0, le=LAST_EPOCH)]


class _MemberDocument(msgspec.Struct, forbid_unknown_fields=False):
    node: _Text
    replica: _Text
    address: _Text


class _Document(msgspec.Struct, forbid_unknown_fields=False):
    version: int
    birth: Annotated[str, Meta(min_length=1, max_length=64)]
    epoch: _Count
    revision: _Count
    master: _Text
    members: Annotated[list[_MemberDocument], Meta(min_length=1, max_length=MAX_MEMBERS)]
    copies: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]
    paused: bool
    write: _Text


class _Version(msgspec.Struct):
    version: int


def encode(record: GroupRecord) -> bytes:
    """The document that a coordination store keeps."""
    members = [{"node": each.node, "replica": str(each.replica), "address": each.address} for each in record.members]
    return json.dumps(
        {
            "version": RECORD_VERSION,
            "birth": record.birth,
            "epoch": record.epoch,
            "revision": record.revision,
            "master": str(record.master),
            "members": members,
            "copies": record.copies,
            "paused": record.paused,
            "write": record.write,
        },
        sort_keys=True,
    ).encode()


def decode(data: bytes, where: str) -> GroupRecord:
    """The record in a document of the store `where`. Raises UnreadableRecord for what no node of this version wrote."""
    if len(data) > MAX_RECORD_BYTES:
        raise UnreadableRecord(where, f"it has {len(data):,} bytes, and a record has at most {MAX_RECORD_BYTES:,}")
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version > RECORD_VERSION:
            raise UnreadableRecord(where, f"it has version {version}, and this dittomq reads up to {RECORD_VERSION}; upgrade this node")
        found = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRecord(where, f"it is no group record ({error})") from error
    members = in_order(Member(each.node, ReplicaId.parse(each.replica), each.address) for each in found.members)
    record = GroupRecord(
        found.birth,
        Epoch(found.epoch),
        found.revision,
        ReplicaId.parse(found.master),
        members,
        found.copies,
        found.paused,
        found.write,
    )
    if problem := _problem(record):
        raise UnreadableRecord(where, problem)
    return record


def _problem(record: GroupRecord) -> str:
    if record.master not in record.ids:
        return f"its master {record.master} is none of its members"
    if len(record.ids) < len(record.members) or len({member.node for member in record.members}) < len(record.members):
        return "it names a member twice"
    if record.epoch <= NO_EPOCH:
        return f"its epoch is {record.epoch}"
    return ""
