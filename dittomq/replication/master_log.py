"""A master's log, as its sessions judge slaves by it.

A master that starts again opens an epoch by itself where nobody it reaches knows of a newer one. Another node may have been promoted out of
its reach meanwhile, S - q + 2 nodes having noted that one's epoch. So what one of these has noted, or written, under a master that this one
was not told of counts as confirmed until it is known not to be: of its bytes none is cut, and it is no copy of this log.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dittomq.lineage import FOREIGN, Lineage, newest_opener
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.replication.degraded import Degraded
from dittomq.replication.events import MAX_PROMISES, Hello
from dittomq.routes import Opening


@dataclass(frozen=True, slots=True)
class Succession:
    """How a master came to its place: it was granted it in `epoch`, after the node of the id `after`, which handed all of its own over.

    What was confirmed in epochs up to `witnessed`, whoever opened them, was known then, or given up by an operator: enough nodes answered
    this master, or one before it in a row of those that handed over. So it was of all epochs up to each of `known` that its opener opened.
    Where its disk, or that of the node before it, was filled, it knows nothing of what that node led in on an earlier one: in epochs up to
    `filled_in`, and `after_filled_in`.
    """

    epoch: Epoch = NO_EPOCH
    after: int | None = None
    witnessed: Epoch = NO_EPOCH
    known: tuple[Opening, ...] = ()
    filled_in: Epoch = NO_EPOCH
    after_filled_in: Epoch = NO_EPOCH

    def knows_of(self, opening: Opening) -> bool:
        """Whether all that was confirmed in that epoch was known then."""
        if opening.epoch <= self.witnessed or (opening.opener_id == self.after and self.after_filled_in < opening.epoch <= self.epoch):
            return True
        return any(opening.epoch <= each.epoch and opening.opener_id == each.opener_id for each in self.known)

    def handed_on(self, settled: Iterable[Opening]) -> tuple[Opening, ...]:
        """What a master that came so, and has `settled` more since, knows of others, for whoever gets its place: the newest of each."""
        newest: dict[int, Epoch] = {}
        before = () if self.after_filled_in else (Opening(self.epoch, self.after),)
        for opening in (*before, *self.known, *settled):
            if opening.opener_id is not None:
                newest[opening.opener_id] = max(opening.epoch, newest.get(opening.opener_id, NO_EPOCH))
        return tuple(Opening(epoch, opener) for opener, epoch in sorted(newest.items()))[:MAX_PROMISES]


AS_CONFIGURED = Succession()
"""Nobody had its place before."""


@dataclass(frozen=True, slots=True)
class MasterLog:
    """The master's log as a session needs it."""

    cluster: str
    broker: str
    segment_bytes: int
    min_offset: PhysicalOffset
    end: PhysicalOffset
    confirmed: PhysicalOffset
    lineage: Lineage
    node: str
    replica_uuid: str
    loss_accepted: bool = False
    """Whether the operator let this master lead without what is missing here: then slaves that have it are cut too."""
    degraded: Degraded = ()
    """Ranges that fewer copies confirmed than asked."""
    succession: Succession = AS_CONFIGURED
    """How it came to lead."""
    settled: Collection[Opening] = ()
    """Epochs of others of which it was learned since that they hold nothing that is not here."""

    @property
    def node_id(self) -> int | None:
        """Its configured id."""
        return newest_opener(self.lineage)

    def knows_of(self, opening: Opening) -> bool:
        """Whether all that may have been confirmed in that epoch is known to be here, or given up by an operator."""
        is_own = opening.opener_id in (None, FOREIGN) or (opening.opener_id == self.node_id and opening.epoch > self.succession.filled_in)
        if is_own or self.loss_accepted or self.succession.knows_of(opening) or opening in self.settled:
            return True
        return any((entry.epoch, entry.opener_id) == (opening.epoch, opening.opener_id) for entry in self.lineage)

    def unknown_promises(self, hello: Hello) -> tuple[Opening, ...]:
        """What a slave has noted for others that may lead, and have confirmed with it what this log lacks."""
        return tuple(each for each in hello.promises if each.opener_id != hello.broker_id and not self.knows_of(each))

    def unknown_in(self, hello: Hello, common: PhysicalOffset) -> Opening | None:
        """An epoch that a slave has bytes of behind what both logs share, and that this master was not told of.

        Where the logs part before the epoch in which this master was let lead, whoever wrote those bytes did not know of it, and of those
        who had not noted it there were too few for anything to be confirmed.
        """
        fence = self.succession.witnessed
        if fence and not any(entry.epoch >= fence for entry in hello.lineage if entry in self.lineage):
            return None
        behind = (entry for entry in hello.lineage if common <= entry.start < hello.end)
        return next((opening for entry in behind if not self.knows_of(opening := Opening(entry.epoch, entry.opener_id))), None)


def remedy_of(node: str) -> str:
    """What an operator may do where the master `node` lacks what was confirmed."""
    return f"empty the data_dir of {node} to copy its slaves, or give these up: dittomq role lead {node} --accept-loss"
