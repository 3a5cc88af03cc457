"""One nameserver, as a node that registers deals with it."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from dittomq.errors import DittoError, OutOfReach
from dittomq.offsets import Epoch
from dittomq.routes import Claim, Opening, TopicQueues

CALL_DEADLINE_S: Final = 3.0
MAX_RETRY_S: Final = 5.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NameserverAnswer:
    """What one nameserver said last. `uptime_ms` is as of now; the master's addresses are empty when it knows none."""

    nameserver: str
    master: str
    master_replication: str
    master_epoch: Epoch | None
    newest: Opening
    uptime_ms: int
    broker_expiry_ms: int

    @property
    def told_epoch(self) -> Epoch:
        """The newest that its master itself told of; of an older nameserver the newest that it was told by anybody."""
        return self.newest.epoch if self.master_epoch is None else self.master_epoch

    @property
    def settled(self) -> bool:
        """Up for its whole expiry: every living broker has had time to register there."""
        return self.uptime_ms >= self.broker_expiry_ms


@dataclass(slots=True)
class Desk:
    """One nameserver, as this node deals with it."""

    nameserver: str
    wake: asyncio.Event
    session: str = ""  # empty: not registered
    stale: bool = False  # what was registered has changed, or may have been forgotten
    topics: tuple[TopicQueues, ...] = ()  # what was registered: a slave's log may hold more than before, and its table does not tell
    answer: NameserverAnswer | None = None  # None: the last call failed
    kept: bool = False  # the group's newest epoch that it knew at its last answer is on its disk
    answered_s: float = 0.0
    refusal: str = ""
    silent_s: float | None = None  # since when it does not answer; None: it does, or was never called
    taken_s: float | None = None  # since when another replica holds this node's id there; None: it does not
    displaced: bool = False  # and that is another node
    rival: Claim | None = None  # why that one leads, None until it has spoken since; or why one that is refused there for this node does
    held_s: float = 0.0  # until when it may hold that id for this node, if it does not answer, or its holder may leave it to this node
    foreign: bool = False  # it serves another cluster, and has never served ours
    described: int = 0  # how often this node was described for it
    reported: int = 0  # the last description that it took, refused or let pass, not one over which a session ended
    round_over: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)  # nothing more is said to it but goodbye

    @property
    def remembered_s(self) -> float:
        """So long it remembers a node, and the refusal for it that another node heard lasts there."""
        return 0.0 if self.answer is None else self.answer.broker_expiry_ms / 1_000 + MAX_RETRY_S + CALL_DEADLINE_S

    def note(self, node: str, problem: DittoError | None, event: str) -> None:
        """What keeps the node out of its routes, or may; until that changes, it need not be logged again."""
        before, self.refusal = self.refusal, "" if problem is None else str(problem)
        if self.refusal not in ("", before):
            log.warning(event, node=node, nameserver=self.nameserver, reason=self.refusal)

    def note_silence(self, node: str, silence: OutOfReach | None, now: float) -> None:
        """Log when it no longer answers, and when it does again, if only to refuse; `silence` None: it answered just now."""
        if silence is not None and self.silent_s is None:
            self.silent_s = now
            log.warning("nameserver_silent", node=node, nameserver=self.nameserver, problem=str(silence))
        elif silence is None and self.silent_s is not None:
            log.info("nameserver_answers_again", node=node, nameserver=self.nameserver, silent_s=round(now - self.silent_s, 1))
            self.silent_s = None
