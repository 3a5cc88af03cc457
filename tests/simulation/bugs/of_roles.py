"""Bugs in who comes to lead after another, and in what counts then."""

from types import SimpleNamespace
from typing import Any

from dittomq.broker.others import Others
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Member
from dittomq.replication.leadership import Leadership
from dittomq.replication.master_log import MasterLog
from dittomq.replication.promotion import _Promotion
from dittomq.replication.slave_session import SlaveSession
from dittomq.replication.standings import KnownBefore, Stance
from dittomq.routes import NO_OPENING
from services.master.term import Term
from services.nameserver import keeping
from services.slave.filling import Filling
from services.slave.replica import Replica
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster


def epochs_of_others_ignored(patches: Patches, _: Cluster) -> None:
    patches.put(Leadership, "_elsewhere", always(None))
    patches.put(Leadership, "_asks", always(""))


def newer_epochs_end_nothing(patches: Patches, _: Cluster) -> None:
    """A master goes on, whoever tells it of a newer epoch."""
    patches.put(Term, "end", always(None))


def older_masters_are_obeyed(patches: Patches, _: Cluster) -> None:
    """A slave follows whoever it finds, and tells no master of the epochs that it has heard of."""

    def make(honest: Any) -> Any:
        async def describe(replica: Replica, own_address: str, _: Any, **said: Any) -> Any:
            return await honest(replica, own_address, SimpleNamespace(newest=NO_OPENING, promises=()), **said)

        return describe

    patches.put(SlaveSession, "_older", always(""))
    patches.put(SlaveSession, "_told_of", always([]))
    patches.put(Replica, "describe", make)


def strange_epochs_are_nothing(patches: Patches, _: Cluster) -> None:
    """Whatever a slave has noted for others, or written under them, that its master was not told of."""
    patches.put(MasterLog, "knows_of", always(True))


def anybody_is_promoted(patches: Patches, _: Cluster) -> None:
    patches.put(_Promotion, "_after_silence", always(()))


def nobody_is_told_of_an_epoch(patches: Patches, cluster: Cluster) -> None:
    """No replica is told. Nameservers forget, too, what they heard: they would make good for it."""

    async def told_nobody(others: Others, _: Any, known: Any) -> dict[str, KnownBefore]:
        return {address: KnownBefore(Stance.FOLLOWING, NO_OPENING) for address in await others._addresses(known)}  # as if they had noted it

    patches.put(Others, "announce", lambda _: told_nobody)
    a_nameserver_keeps_nothing(patches, cluster)


def a_nameserver_keeps_nothing(patches: Patches, _: Cluster) -> None:
    patches.put(keeping, "keep", always(""))


def new_disks_are_witnesses(patches: Patches, _: Cluster) -> None:
    """A slave says that it has all that the disk before its own acknowledged."""

    def make(_: Any) -> Any:
        async def load(filling: Filling, store: Any) -> None:
            filling.goes_on = False

        return load

    async def begun(_: Filling) -> None:
        return

    patches.put(Filling, "load", make)
    patches.put(Filling, "begin", lambda _: begun)


def acks_of_old_sessions_count(patches: Patches, _: Cluster) -> None:
    """Whoever was in sync with the last master is taken to hold all that the new epoch begins with."""

    def make(honest: Any) -> Any:
        def begin(confirm: Confirm, rules: Any, *, end: PhysicalOffset, **others: Any) -> None:
            honest(confirm, rules, end=end, **others)
            for slave in confirm._slaves.values():
                slave.member, slave.received, slave.flushed = Member.IN_SYNC, end, end

        return begin

    patches.put(Confirm, "__init__", make)
