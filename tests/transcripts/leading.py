"""`leadership` on the stage: one start of a master. Two slaves are configured and two copies asked for, unless told otherwise.

    > SlaveHeard broker_id=1 end=900 lineage=1@0        a hello, as in the plays of `master`
    > SlaveGone node=a/1
    > NameserversSay epoch=7 opener=1                   a node with another id has opened it
    > LossAccepted                                      the operator lets it lead
    > TookOver                                          the tail that the last answer named is here, durably
    > BrokeOff                                          its slave could not be read to the end
    > Mended unread=550-600                             what is left of the damaged bytes whose numbers are not known
    > OthersSay epoch=7 opener=1                        those that nameservers list were asked, and know of this epoch
    > OthersSay epoch=7 opener=1 waits=yes              it is told of by a master that does not lead yet
    > Recovers node_id=1 epoch=7 opener=1 granted=7     a master is among them that does not lead yet, with this claim
    > Announced                                         the others were told of the epoch that the last answer named
    > GaveUp                                            it is written down that its log is a part of what slaves hold
    > Asked

It is asked after each event, but not while a tail is being fetched, an epoch given up, or others are being told, which is done at once
unless announces=no is given. An answer that is the one before is not repeated.
"""

from dataclasses import replace
from typing import Any

from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication import events
from dittomq.replication.group_of_start import LeadershipRules, Others
from dittomq.replication.leadership import Leadership
from dittomq.replication.leadership_decisions import Announce, GiveUp, TakeOver
from dittomq.replication.own_log import OwnLog, Stopped
from dittomq.routes import NO_OPENING, Claim, Opening
from tests.transcripts.script import shown
from tests.transcripts.sessions import told


class Start:
    """One start. Opened with stopped, end, lineage, slaves, copies, sync_flush, granted, unread; asked=no: others were not asked yet;
    announces=no: the play says when others were told."""

    ticks = False

    def __init__(self, given: dict[str, Any], now: float) -> None:
        rules = LeadershipRules(
            replicas_expected=given.get("slaves", 2),
            in_sync_replicas=given.get("copies", 2),
            sync_flush=given.get("sync_flush", True),
            recover_wait_s=5.0,
        )
        end = PhysicalOffset(given.get("end", 0))
        self._own = OwnLog("a/0", Stopped(given["stopped"]), end, given.get("lineage", ()))
        self._own = replace(self._own, granted=given.get("granted"), unread=_ranges(given))
        self._leadership = Leadership(rules, self._own, now)
        self._leadership.nameservers_say(NO_OPENING, settled=given.get("denied", True), id_taken="")  # that another node leads
        if given.get("asked", True):
            self._leadership.others_say(())
        self._announces = given.get("announces", True)
        self._is_announcing = False
        self._plan: TakeOver | None = None
        self._said = ""

    def act(self, event: str, given: dict[str, Any], now: float) -> list[str]:
        """What it decides now, unless that is what it said before."""
        match event:
            case "SlaveHeard":
                self._leadership.slave_heard(told("Hello", given, events))
            case "SlaveGone":
                self._leadership.slave_gone(given["node"])
            case "NameserversSay":
                newest = Opening(Epoch(given.get("epoch", 0)), given.get("opener"))
                self._leadership.nameservers_say(newest, settled=given.get("settled", False), id_taken=given.get("id_taken", ""))
            case "LossAccepted":
                self._leadership.accept_loss()
            case "TookOver":
                assert self._plan is not None
                self._own = replace(self._own, end=self._plan.end, lineage=self._plan.lineage)
                self._plan = None
                self._leadership.took_over(self._own)
            case "OthersSay":
                told_of = [Opening(Epoch(given.get("epoch", 0)), given.get("opener"))]
                self._leadership.others_say(*(((), told_of) if given.get("waits") else (told_of,)))
            case "Recovers":
                claim = Claim(Opening(Epoch(given["epoch"]), given["opener"]), given.get("granted"))
                self._leadership.others_say((), who=Others(recovering={given["node_id"]: claim}))
            case "Announced":
                self._is_announcing = False
                self._leadership.announced()
            case "GaveUp":
                self._own = replace(self._own, stopped=Stopped.INCOMPLETE, told=self._own.newest)
                self._is_announcing = False
                self._leadership.gave_up(self._own)
            case "Mended":
                self._leadership.mended(_ranges(given))
            case "BrokeOff":
                assert self._plan is not None
                self._leadership.slave_gone(self._plan.source)
                self._plan = None
            case _:
                assert event == "Asked", f"a start has no event {event}"
        return [] if self._plan or self._is_announcing else self._ask(now)

    def _ask(self, now: float) -> list[str]:
        decision = self._leadership.decide(now)
        self._plan = decision if isinstance(decision, TakeOver) else None
        before, self._said = self._said, shown(decision)
        told = [] if self._said == before else [self._said]
        self._is_announcing = isinstance(decision, Announce) and not self._announces
        if isinstance(decision, GiveUp):
            self._is_announcing = True
        if self._is_announcing or not isinstance(decision, Announce):
            return told
        self._leadership.announced()
        return [*told, *self._ask(now)]


def _ranges(given: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    """The damaged bytes of `unread=500-600,700-800`."""
    parts = [part.partition("-") for part in given.get("unread", "").split(",") if part]
    return tuple((int(start), int(end)) for start, _, end in parts)
