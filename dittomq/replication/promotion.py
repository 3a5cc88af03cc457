"""Who may be promoted: what a slave must hear before it takes its master's place.

Pure. The rules (S slaves configured, q copies asked for); the *old master* is who opened the newest epoch that anybody
knows of, of two that opened it one that has stepped down, or else one that does not answer:

    somebody leads                         planned: it is asked to step down, and then confirms where its log ends
    the old master has stepped down, and   planned: the target holds its log up to there, and that is enough
      who it made room for never led
    it is silent (or has made room for     unplanned: of at least S - q + 2 slaves that answer, the target included, it has the newest
      one that is), and the operator         lineage and the longest received end
      says that it is stopped
    it answers as a slave, with its log,   the same, without the operator's word; it counts as a slave that answers
      and is not told to lead
    anything else                          refused by name; `accept_loss` goes past it and names what may be lost
    nobody here has ever heard of a log    every other node of the group must answer that it holds nothing either
    in any of these: damaged bytes here    the same, before anybody is asked to step down: nobody knows which queue offsets and sequences
      that no queue of the target knows      the messages in them have

A second node that leads, or an old master that is there and says it is none of these, is refused in any case: stop it first. So is a
second slave that is told to lead: each says so before it asks the others, so that of two at least one hears of the other.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dittomq.lineage import FOREIGN, common_end
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import may_lack
from dittomq.replication.losses import only_on_others
from dittomq.replication.standings import Stance, Standing
from dittomq.routes import Opening


@dataclass(frozen=True, slots=True)
class PromotionOrder:
    """What the operator says."""

    accept_loss: bool = False
    old_master_is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class AskToStepDown:
    """Ask that node to drain and step down, and then decide again with what it confirmed."""

    node: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Fsync what was received, write the grant down, and come back as the master. `other` is the old master's name, "" for none.

    `in_sync` names the slaves that count as in sync until they miss their deadlines. `not_heard`, in words, is what nobody who answered can
    know, though the rule lets it lead: what a degraded group confirmed is perhaps on the silent master's disk only.
    So many nodes, itself included, `must_note` the epoch before it takes the place: were they fewer, an old master that lives on or starts
    again could confirm with the others. 0: the old master has stepped down, or the operator accepts that too few answer. `made_room`:
    the old master that has stepped down, which says what it knew; None: enough answered to know of all that older epochs confirmed, or the
    operator gives up what they do not know.
    """

    epoch: Epoch
    other: str
    in_sync: tuple[str, ...]
    may_be_lost: str
    not_heard: str = ""
    must_note: int = 0
    made_room: Standing | None = None


@dataclass(frozen=True, slots=True)
class RefusePromotion:
    """`why` says what is missing, and what to do."""

    why: str


PromotionDecision = AskToStepDown | Promote | RefusePromotion


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside what each replica says of itself.

    `names` are nodes of the group that are or were there: whoever is missing is named where that can be. `noted`: which of those heard have
    noted the epoch; nobody else but the target is a witness then. None: nobody was told of one yet.
    """

    names: Collection[str] = ()
    noted: Collection[str] | None = None


NOTHING_MORE = Surroundings()


def decide_promotion(
    target: Standing, heard: Mapping[str, Standing], known: Opening, order: PromotionOrder, around: Surroundings = NOTHING_MORE
) -> PromotionDecision:
    """What to do now. `heard` are the other replicas that answered, by name; `known` is the newest epoch nameservers know of."""
    return _Promotion(target, heard, known, order, around).decide()


def loss_changed(lost: str) -> str:
    """What is said where `lost` is not what may be lost by the first decision: that may be more, less, or of another node."""
    return f"since it was decided what may be lost has changed: {lost or 'nothing'}"


class _Missing(NamedTuple):
    """What keeps a promotion from being safe, and what to do about it. `is_a_word`: only the operator's word is missing.

    `lost`, or else `what`, is what may be lost where an operator accepts it.
    """

    what: str
    remedy: str
    is_a_word: bool = False
    lost: str = ""


class _Promotion:
    """One decision."""

    def __init__(
        self, target: Standing, heard: Mapping[str, Standing], known: Opening, order: PromotionOrder, around: Surroundings
    ) -> None:
        self._target = target
        self._around = around
        self._others = [heard[node] for node in sorted(heard) if node != target.node]
        self._order = order
        self._known = known
        self._broker = target.node.rpartition("/")[0]
        openings = (known, target.newest, *(other.newest for other in self._others))
        self._newest = max(openings, key=lambda each: (each.epoch, self._has_made_room(each), self._is_silent(each)))
        self._openers = {each.opener_id for each in openings if each.epoch == self._newest.epoch} - {None, FOREIGN}

    def decide(self) -> PromotionDecision:
        leading = [other.node for other in self._others if other.stance is Stance.LEADING]
        refusal = self._misconfigured() or self._in_the_way(leading)
        if refusal:
            return RefusePromotion(refusal)
        hidden = list(self._hidden_numbers())
        if hidden and not self._order.accept_loss:
            return RefusePromotion(self._words(hidden))
        if leading:
            newer = "" if self._order.accept_loss else self._noted_beyond(leading[0])
            return RefusePromotion(newer) if newer else AskToStepDown(leading[0])
        demoted = self._demoted()
        missing = [*hidden, *(self._after_silence() if demoted is None else self._after_step_down(demoted))]
        if missing and not self._order.accept_loss:
            return RefusePromotion(self._words(missing))
        not_heard = "" if demoted is not None else self._not_heard()
        must_note = self._target.rules.witnesses if demoted is None and _is_only_a_word(missing) else 0
        lost = "; ".join(each.lost or each.what for each in missing)
        return Promote(self._next_epoch(), self._gives_way(), self._in_sync(), lost, not_heard, must_note, demoted)

    def _words(self, missing: Sequence["_Missing"]) -> str:
        words = "; ".join(f"{each.what}. {each.remedy}" for each in missing)
        if not _is_only_a_word(missing):
            return words
        of_as_many = f" by {self._target.rules.copies_of_confirmed} copies" if self._not_heard() else ""
        return f"{words}. {self._target.node} lacks nothing confirmed{of_as_many}"

    def _misconfigured(self) -> str:
        """The target would not lead this group as its other nodes do."""
        rules = self._target.rules
        if rules.replicas_expected == 0:
            return f"{self._target.node} is configured for a group without slaves; give every node of {self._broker} the same [replication]"
        other = next((other for other in self._others if not other.rules.agrees_with(rules)), None)
        if other is None:
            return ""
        return f"{self._target.node} would lead as {rules} and {other.node} says {other.rules}; give every node the same [replication]"

    def _in_the_way(self, leading: list[str]) -> str:
        """What nobody's word goes past: it could still be writing."""
        if len(leading) > 1:
            return f"{' and '.join(leading)} both lead; stop the one whose messages are to be given up"
        recovering = next((other.node for other in self._others if other.stance is Stance.RECOVERING), "")
        if recovering:
            return f"{recovering} is there as a master and recovers; let it lead (dittomq ha-status says what it waits for) or stop it"
        seeking = next((other.node for other in self._others if other.seeks_place), "")
        if seeking:
            return f"{seeking} is told to lead just now; see whether it does (dittomq ha-status), or stop it and give the command again"
        return ""

    def _noted_beyond(self, leader: str) -> str:
        """Who knows of an epoch that would keep the target from its place when the master has stepped down."""
        knows = max((self._target, *self._others), key=lambda each: each.granted)
        if knows.granted <= self._newest.epoch:
            return ""
        opener = "" if knows.claim.opener_id is None else f" of {self._broker}/{knows.claim.opener_id}"
        noted = f"{knows.node} has noted epoch {knows.granted}{opener}"
        untold = f"of which {leader} was not told, which leads in epoch {self._newest.epoch}"
        return f"{noted}, {untold}. Let {knows.node} reach {leader}, which gives way then, and give the command again"

    def _hidden_numbers(self) -> Iterator[_Missing]:
        """What would let it give places again that messages have."""
        node, size = self._target.node, self._target.unread_bytes
        if size:
            hidden = f"{size:,} bytes are damaged on {node} and may hold the newest messages of queues"
            yield _Missing(hidden, "Wait until it has them back from another copy (dittomq ha-status shows it), or promote another one")

    def _old_master(self) -> str:
        opener = self._newest.opener_id
        return "" if opener in (None, FOREIGN) else f"{self._broker}/{opener}"

    def _stepped_down(self) -> Standing | None:
        """The old master, when it answers that it gave its place up, or is this node."""
        everybody = (self._target, *self._others)
        return next((each for each in everybody if each.node == self._old_master() and each.stepped_down_at is not None), None)

    def _last_leader(self) -> str:
        """Who may be writing still: the old master, or the one that it made room for."""
        stepped_down = self._stepped_down()
        return self._old_master() if stepped_down is None else stepped_down.successor or stepped_down.node

    def _gives_way(self) -> str:
        """Whose place the target takes; empty when nobody is known to have had it."""
        return next((node for node in (self._last_leader(), self._old_master()) if node != self._target.node), "")

    def _demoted(self) -> Standing | None:
        """The old master, when it has stepped down and nobody can have led since.

        Who it made room for held all of its log then. That one must still do so, and know of no newer epoch: with another disk, or
        silent, it may have led meanwhile, and have confirmed with any of the others.
        """
        old, everybody = self._stepped_down(), (self._target, *self._others)
        if old is None or max(each.granted for each in everybody) > self._newest.epoch:
            return None
        heir = next((each for each in everybody if each.node == old.successor), None)
        return old if heir is not None and (heir is self._target or _holds_all_of(old, heir)) else None

    def _nobody_writes(self) -> bool:
        """Whether everybody who may have led last answers as a slave, with the disk it had: what they confirmed the witnesses show.

        So it is when two masters have given way to each other. One with another disk may be the second of its name.
        """
        everybody = (self._target, *self._others)
        claims = {each.claim.opener_id for each in everybody if each.claim.epoch > self._newest.epoch}
        if None in claims or FOREIGN in claims:
            return False
        may_have_led = {self._last_leader(), *(f"{self._broker}/{opener}" for opener in claims | self._openers)}
        slaves = {self._target.node, *(each.node for each in self._others if each.only_follows)}
        return all(each.lineage and not each.is_filling for each in everybody if each.node in may_have_led) and may_have_led <= slaves

    def _has_made_room(self, opening: Opening) -> bool:
        """Whether who opened that epoch has stepped down for one that answers: of two that opened it, that one may lead next."""
        everybody = (self._target, *self._others)
        heirs = {each.successor for each in everybody if each.node_id == opening.opener_id and each.stepped_down_at is not None}
        return any(each.node in heirs for each in everybody)

    def _is_silent(self, opening: Opening) -> bool:
        """Whether it is known who opened that epoch, and that one does not answer."""
        everybody = (self._target, *self._others)
        return opening.opener_id not in {None, FOREIGN, *(each.node_id for each in everybody)}

    def _after_step_down(self, old: Standing) -> Iterator[_Missing]:
        """What the target lacks of what the old master confirmed to be all, or has beyond that: it may have been said not to be stored."""
        held = _held_of(old, self._target)
        if old.stepped_down_at is not None and held < old.stepped_down_at:
            gap = f"{old.node} stepped down at {old.stepped_down_at:,} and {self._target.node} holds its log up to {held:,}"
            yield _Missing(gap, f"Promote one that has all of it, or {old.node} itself")
        elif held < self._target.end and self._target.rank < old.rank:
            stale = f"{self._target.node} has {self._target.end - held:,} bytes that {old.node} did not have when it stepped down"
            yield _Missing(stale, f"Promote one whose log ends there, or {old.node} itself")

    def _after_silence(self) -> Iterator[_Missing]:
        """What is missing before a slave may take the place of a master that does not answer."""
        old, target, rules, nobody_writes = self._last_leader(), self._target, self._target.rules, self._nobody_writes()
        if old and not nobody_writes and not self._order.old_master_is_stopped:
            yield self._doubt(old)
        if not any(each.lineage for each in (target, *self._others)) and len(self._others) < rules.replicas_expected:
            nothing = f"{target.node} holds nothing and hears {len(self._others)} of the other {rules.replicas_expected} nodes of its group"
            yield _Missing(nothing, "Start the others, and promote one that has messages")
        if self._known.epoch > target.newest.epoch:
            who = f" by {old}" if old else ""
            newer = f"nameservers know of epoch {self._known.epoch}, opened{who}, and the newest of {target.node} is {target.newest.epoch}"
            yield _Missing(newer, self._where_newest_is())
        answer = [each for each in (target, *self._others) if nobody_writes or each.node != old]  # that one may answer, with another disk
        answer = [each for each in answer if each is target or self._around.noted is None or each.node in self._around.noted]
        new = [each.node for each in answer if each.is_filling] if any(each.lineage for each in answer) else []
        if rules.witnesses > rules.replicas_expected and not nobody_writes:
            asked = "with one copy asked for" if rules.in_sync_replicas == 1 else "under ASYNC_MASTER"
            alone = f"{asked}, what was confirmed is surely on the disk of {old or 'the master'} only"
            yield _Missing(alone, "Start that one again")
        elif len(answer) - len(new) < rules.witnesses:
            yield self._too_few(answer, new, old)
        yield from filter(None, map(self._outranked_by, self._others))

    def _too_few(self, answer: Sequence[Standing], new: Sequence[str], old: str) -> _Missing:
        """Too few of those answer that together hold all; the `new` ones among them count for nothing."""
        rules, nodes = self._target.rules, {each.node for each in answer}
        all_slaves = rules.replicas_expected + (old in nodes)
        count, known = rules.witnesses - len(nodes) + len(new), {*self._around.names, *nodes} - ({old} - nodes)
        few = f"{len(nodes) - len(new)} of the {rules.witnesses} slaves answer that together hold all that was confirmed"
        silent = sorted(known - nodes)
        if self._around.noted is not None:
            few, remedy = f"{few}, and have noted the epoch", "Give the command again when the others answer"
        else:
            some = " and ".join(silent) if 0 < len(silent) <= count else f"{count} more" + (f" of {', '.join(silent)}" if silent else "")
            whom = f"{old or 'the master'} again" if len(nodes) >= all_slaves else some
            remedy = f"Start {whom}, or add --accept-loss: what only those hold that do not answer may be lost then"
        on_new = f"; {may_lack(new)}" if new else ""
        return _Missing(few + on_new, remedy, lost=only_on_others(all_slaves, nodes, known, new))

    def _not_heard(self) -> str:
        """What only a silent master can know; empty where it had to refuse what fewer copies would have confirmed."""
        old, rules = self._last_leader(), self._target.rules
        if not old or not rules.may_degrade or self._nobody_writes():
            return ""
        return f"what {old} confirmed on fewer than {rules.copies_of_confirmed} copies, if anything: only that one knows"

    def _where_newest_is(self) -> str:
        """What to do about an epoch that the target does not have."""
        is_there = any(other.newest.epoch >= self._known.epoch for other in self._others)
        if is_there or len(self._others) < self._target.rules.replicas_expected:
            return "Promote one that has it"
        return "Every node answers and none has it any more: --accept-loss gives up what was only on the disk that had it"

    def _outranked_by(self, other: Standing) -> _Missing | None:
        target = self._target
        common = common_end(ours=target.lineage, our_end=target.end, theirs=other.lineage, their_end=other.end)
        if other.rank > target.rank:
            more = f"{other.node} has {other.end - common:,} bytes that {target.node} lacks"
            return _Missing(more, f"Promote it: dittomq role lead {other.node}")
        if other.confirmed > common:
            other_log = f"{other.node} knows {other.confirmed:,} bytes to be confirmed, {target.node} agrees with it only up to {common:,}"
            return _Missing(other_log, f"Promote it: dittomq role lead {other.node}")
        return None

    def _doubt(self, old: str) -> _Missing:
        """Why it needs the operator's word that the last leader does not write. One that answers with a new disk is not to be stopped."""
        stepped_down = self._stepped_down()
        made_room = "" if stepped_down is None or old == stepped_down.node else f"{stepped_down.node} made room for {old}, which "
        known = next((each for each in (self._target, *self._others) if each.node == old), None)
        if known is not None and (known.is_filling or not known.lineage):
            what = f"{made_room or f'{old} '}may have led and answers without the log that it led with"
            return _Missing(what, "Make sure that nothing runs on the disk it had, then add --old-master-is-stopped", is_a_word=True)
        since = "may have led since" if made_room else "has not confirmed its demotion"
        what = f"{made_room or f'{old} '}{since} and may still be writing"
        first = "Look at dittomq ha-status first: another change may be under way"  # who is just coming back as a master is silent, too
        then = f"where {old} neither leads nor comes back, stop it, then add --old-master-is-stopped"
        return _Missing(what, f"{first}; {then}", is_a_word=True)

    def _next_epoch(self) -> Epoch:
        """Above all that was granted, also what was granted to a silent one that the old master made room for."""
        everybody = (self._target, *self._others)
        unheard = self._last_leader() not in {self._old_master(), *(each.node for each in everybody)}
        return Epoch(1 + unheard + max(self._newest.epoch, *(each.granted for each in everybody)))

    def _in_sync(self) -> tuple[str, ...]:
        """Who holds as much as the target."""
        return tuple(other.node for other in self._others if other.rank == self._target.rank)


def _is_only_a_word(missing: Sequence[_Missing]) -> bool:
    """Whether the witnesses have answered: then they can be told, too, and nothing more is confirmed without them."""
    return all(each.is_a_word for each in missing)


def _held_of(old: Standing, other: Standing) -> PhysicalOffset:
    """Up to where that one holds what the old master held when it stepped down."""
    return common_end(ours=other.lineage, our_end=other.end, theirs=old.lineage, their_end=old.stepped_down_at or old.end)


def _holds_all_of(old: Standing, other: Standing) -> bool:
    return _held_of(old, other) == old.stepped_down_at
