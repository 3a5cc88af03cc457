"""Who may lead: what a starting master must hear before it opens an epoch.

Pure. Rules (semantics §5), S slaves configured, q copies asked for:

    no slaves configured                lead at once
    whole log (clean stop or a kill)    lead at once; with a table that came from its .bak, wait for slaves like after a power loss
    power loss, SYNC_FLUSH              the disk holds all that was confirmed: wait `recover_wait_s` for slaves, or until all came
    power loss, ASYNC_FLUSH, q >= 2     hear S - q + 2 slaves, then wait for the others as above
    failed fsync, q >= 2                the same
    both with q = 1                     wait `recover_wait_s`
    empty store                         a slave with data: hear S - q + 2 slaves (q = 1: all), then wait for the others as above;
                                        only empty ones: hear all S
    incomplete copy                     it was to get another copy's log and holds a part: like an empty store, but when only empty
                                        slaves are heard, an operator must decide
    gave its epoch up                   the same; it led, or was about to, and its slaves had confirmed with another node what it lacks:
                                        the longest of their logs is taken, whatever it holds itself

Before that, with slaves configured, nameservers and peers are asked whether a node with another configured id has opened an epoch newer
than this log's, or one with the number of this log's newest one when that holds no bytes (this node died over it before anybody heard), or
leads in one of that number which this node was not granted, or by a higher claim, or while this one's holds no bytes and too few had noted
its promotion: then this node is that one's slave. One that leads by a lower claim gives way to one whose promotion enough nodes have noted,
though nameservers may refuse that one for it; then slaves say no hello to it, but they are asked. Only all slaves can deny it, or a
nameserver that has heard all living brokers; with that one, the replicas that nameservers list are asked as well: one may have been
promoted and not have reached any nameserver. A node that was just granted its epoch by a role change need not hear it denied.

Those that must be heard have all that was confirmed by q copies. What a degraded group confirmed may be on any of the others. A slave that
began on an empty disk, or gave up a copy of its master's log or a part of one, and has not caught up since is not among them: what is
gone may have been one of the q.

Then the longest tail of the newest lineage among those heard, own log included, is taken over, unless it is another master's of the same
epoch and lacks what this one confirmed, or may have. One that begins too late to be joined to this log is an operator's to give up, or to
be copied from its beginning onto an empty disk.

With slaves configured, damaged bytes whose queue offsets and sequences nobody here knows must be whole again: any replica may have them.
Otherwise a new message could get the place of a confirmed one that lies there. A promotion has looked at them already.

Last, with slaves configured, every replica that it reaches is told of the epoch, and writes it down, before it is opened: whoever starts
later and asks one of them does not open it too. What they knew before may change the decision. Of two masters that recover and know of each
other, the one with the lower claim is `_PRECEDENCE_S` later with that: told of each other's epoch at once, each would follow the other.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dittomq.lineage import NO_RANK, common_end, newest_epoch, newest_opener, rank
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import Hello, may_lack
from dittomq.replication.group_of_start import LeadershipRules, Others, forget_least
from dittomq.replication.leadership_decisions import STANDING, Announce, Decision, Follow, GiveUp, Lead, Refuse, TakeOver, Wait
from dittomq.replication.leadership_states import MOVES, Found, Standing
from dittomq.replication.losses import IF_ANOTHER_LEADS, REST_OF_A_COPY, hidden_in, only_on_others
from dittomq.replication.own_log import OwnLog, Ranges, Stopped
from dittomq.routes import NO_OPENING, Claim, Opening

_PRECEDENCE_S: Final = 2.0


class Leadership:
    """One start of one master, until it leads."""

    def __init__(self, rules: LeadershipRules, own: OwnLog, now: float) -> None:
        self._rules = rules
        self.standing = MOVES.first
        self._own = own
        self._started_at = now
        self._heard: dict[str, Hello] = {}
        self._ever_heard: dict[str, Hello] = {}  # by replica uuid: a node with a new disk is another one
        self._known_epoch = own.outgrown_epoch
        self._told: dict[int, Epoch] = {}  # the newest epoch of each opener that others told of
        self._who = Others()
        self._answered: set[str] = set()
        self._nameserver_settled = False
        self._others_asked = False
        self._id_taken = ""
        self._rivals: tuple[Claim, ...] = ()
        self._accepts_loss = False
        self._taken_over = False
        self._given_up = own.accepted_loss if own.is_freshly_granted else ""
        self._epoch_given_up = own.newest.epoch if own.gave_up_epoch else None
        self._announcing = self._announced = Epoch(0)  # the epoch that others are told of, and the one that they were told of
        self._ready_at: float | None = None  # since when nothing was missing but that another one comes first
        self._passed_over = ""  # what only those hold who were still to be heard when the operator accepted the loss
        self._learn(own.told)

    @property
    def must_hear_slaves(self) -> bool:
        """Whether this start cannot lead alone, however long it waits, unless an operator accepts the loss."""
        return self._rules.replicas_expected > 0 and self._own.stopped.lacks_most

    def slave_heard(self, hello: Hello) -> None:
        """A slave said hello; its newest hello counts."""
        self._heard[hello.node] = self._ever_heard[hello.replica_uuid] = hello
        forget_least(self._ever_heard, self._lacks_some_of)
        self._known_epoch = max(self._known_epoch, newest_epoch(hello.lineage))  # opened, be it by this node that lost the bytes
        self._learn(Opening(newest_epoch(hello.lineage), newest_opener(hello.lineage)))
        self._learn(hello.newest)
        if self._is_answer(hello.newest) and len(self._answered) < self._rules.replicas_expected:
            self._answered.add(hello.node)

    def slave_gone(self, node: str) -> None:
        """Its stream ended: what it holds cannot be fetched now. What it knew to be confirmed is not forgotten."""
        self._heard.pop(node, None)

    def nameservers_say(self, newest: Opening, *, settled: bool, id_taken: str, rivals: tuple[Claim, ...] = ()) -> None:
        """The newest epoch they know of, whether one has heard all living brokers, who keeps them from taking this node in, and why those
        lead for whom it is refused.
        """
        self._learn(newest)
        self._nameserver_settled = self._nameserver_settled or settled
        self._id_taken = id_taken
        self._rivals = rivals

    def others_say(self, newest: Iterable[Opening], waiting: Iterable[Opening] = (), who: "Others | None" = None) -> None:
        """The replicas that nameservers list were asked; these are the newest epochs that those who answered know of.

        `waiting`: those of masters that do not lead yet either. Was this node granted the same epoch, it does not give way to their word:
        they hear its own, and each would follow the other. Nameservers take in one of them. `who` they are, None: as before.
        """
        self._who = who or self._who
        for opening in newest:
            self._learn(opening)
        for opening in waiting:
            self.told_of(opening)
        self._others_asked = True

    def told_of(self, opening: Opening) -> bool:
        """A master that does not lead yet is about to open this epoch; whether this node is to follow another one now."""
        if not (self._own.is_freshly_granted and opening.epoch == self._own.granted):
            self._learn(opening)
        return self._elsewhere() is not None

    def announced(self) -> None:
        """An Announce was carried out; what those who answered knew before was said too."""
        self._move(Found.ANNOUNCED, Standing.WAITING)
        self._announced = self._announcing

    def accept_loss(self, *, accepted: bool = True) -> None:
        """The operator lets this master lead with what was heard so far, or does so no more."""
        self._accepts_loss = accepted

    def heard_addresses(self) -> list[str]:
        """Replication addresses of the slaves heard, by node name."""
        return [self._heard[node].replication_address for node in sorted(self._heard)]

    def mended(self, unread: Ranges) -> None:
        """Of the damaged bytes whose numbers are not known, these are left."""
        self._own = replace(self._own, unread=unread)

    def took_over(self, own: OwnLog) -> None:
        """A TakeOver was carried out, durably: the log is now `own`."""
        self._move(Found.TOOK_OVER, Standing.HOLDING)
        self._own, self._taken_over = own, True
        self._known_epoch = max(self._known_epoch, own.outgrown_epoch)  # the slave's tables came, too

    def gave_up(self, own: OwnLog) -> None:
        """A GiveUp was carried out, durably: the log is `own`, a part of what slaves hold."""
        self._move(Found.GAVE_UP, Standing.WAITING)
        self._own, self._epoch_given_up = own, own.newest.epoch

    def took_a_part(self, own: OwnLog) -> None:
        """A TakeOver came to a stop before its end: the log is `own`, durably, and decides nothing yet."""
        self._own = own

    def decide(self, now: float) -> Decision:
        """What to do now; ask again after every event and every tick, until it is Lead or Follow."""
        found, decision = self._find(now)
        self._move(found, STANDING[type(decision)])
        self._announced = Epoch(0)  # what is not opened at once is announced again
        return decision

    def _find(self, now: float) -> tuple[Found, Decision]:
        elsewhere = self._elsewhere()
        if elsewhere is not None and elsewhere.opener_id is not None:
            if self._own.gave_up_epoch and not self._others_asked:
                return Found.MORE_TO_HEAR, Wait("the replicas that nameservers list: who opened a newer epoch may lead no more")
            if self._is_to_be_followed(elsewhere):
                return Found.NEWER_ELSEWHERE, Follow(elsewhere.epoch, elsewhere.opener_id)
        goes_on = self._taken_over or self.must_hear_slaves or self._is_stronger()
        if self._id_taken and not goes_on:  # an epoch opened now would be a step towards taking it away
            return Found.MORE_TO_HEAR, Wait(f"its id: {self._id_taken}")
        waits, asks = ("", "") if self._taken_over else (self._waits_for(now), self._asks())
        if (waits or asks) and not self._accepts_loss:
            return Found.MORE_TO_HEAR, Wait(waits or asks)
        self._passed_over = self._loss_without(waits, asks) or self._passed_over
        best = self._best()
        out_of_reach = "" if best is None else self._out_of_reach(best)
        if best is not None and not out_of_reach:
            return Found.LONGER_TAIL, self._take(best)
        if best is not None and not self._accepts_loss:
            remedy = f"empty the data_dir of {self._own.node} to copy all that {best.node} has"
            return Found.TAIL_OUT_OF_REACH, Refuse(f"{out_of_reach}; {remedy}")
        hidden = self._hidden_numbers()
        if hidden and not self._accepts_loss:
            return Found.NUMBERS_HIDDEN, Wait(f"a replica that has its damaged bytes whole, {hidden}")
        conflict = self._missing_here()
        if conflict and not (self._accepts_loss or self._given_up):
            if self._is_outgrown():
                return Found.OUTGROWN, GiveUp(self._own.newest, conflict)
            return Found.CONFIRMED_MISSING, Refuse(conflict)
        damaged = f"its damaged bytes, {hidden}" if hidden else ""
        loss = "; ".join(part for part in (self._given_up, self._passed_over, out_of_reach, damaged, conflict) if part)
        epoch = Epoch(self._known_epoch + 1)
        if self._announced != epoch and self._rules.replicas_expected > 0:
            if first := self._who_comes_first(now):
                return Found.OUTRANKED, Wait(first)
            self._announcing = epoch
            return Found.NOT_ANNOUNCED, Announce(epoch)
        return Found.ENOUGH, Lead(epoch, loss)

    def _move(self, found: Found, to: Standing) -> None:
        MOVES.check(self.standing, found, to)
        self.standing = to

    def _learn(self, opening: Opening) -> None:
        if self._own.is_freshly_granted and opening.epoch == self._own.granted and opening.opener_id in (None, self._own.node_id):
            return  # this node's own registration, told back by nameservers, or by slaves who heard it there
        if opening == Opening(self._announcing, self._own.node_id):
            return  # its own announcement, told back
        self._known_epoch = max(self._known_epoch, opening.epoch)
        if self._own.gave_up_epoch and opening == self._own.told:
            return  # another node may have opened one of that number
        if opening.opener_id is not None:
            self._told[opening.opener_id] = max(opening.epoch, self._told.get(opening.opener_id, Epoch(0)))

    def _is_answer(self, newest: Opening) -> bool:
        """Whether a replica that knows of no newer epoch denies that another node leads: it can tell who opened that one."""
        return newest.opener_id is not None or newest.epoch <= self._own.held_epoch

    def _elsewhere(self) -> Opening | None:
        """Whose slave this node is: who opened a newer epoch, or leads in one of the number of its own newest one, be it opened by both."""
        newest, own = self._newest(), self._own
        if newest.opener_id not in (None, own.node_id) and newest.epoch > own.held_epoch:
            return newest
        if own.is_freshly_granted:
            return None
        leading = (each for each in self._who.leading if each.opener_id != own.node_id and each.epoch >= own.newest.epoch)
        stronger = [each.opening for each in self._rivals if each.rank > own.claim.rank]
        return next((each for each in leading if each in stronger or not own.stands_by_its_grant), None)

    def _is_to_be_followed(self, elsewhere: Opening) -> bool:
        """Whether its opener leads, as far as anybody knows; in an epoch of the number that was given up here it must say so itself.

        It may have been granted that and never have opened it, and follow this node. What it confirmed, if it did, enough slaves know.
        """
        says = (*self._who.leading, *(rival.opening for rival in self._rivals))
        return elsewhere.epoch != self._epoch_given_up or any(each.opener_id == elsewhere.opener_id for each in says)

    def _is_stronger(self) -> bool:
        """Whether all who keep nameservers from taking this node in lead in the epoch that it was granted, by a lower claim.

        Enough nodes must have noted it for this one then: too few were left for the others to confirm anything with.
        """
        own, rivals = self._own, self._rivals
        weaker = [each for each in rivals if each.opening.epoch == own.newest.epoch and each.rank < own.claim.rank]
        return own.opened_its_grant and own.is_noted and 0 < len(weaker) == len(rivals)

    def _newest(self) -> Opening:
        """What others told of. Where enough slaves are to be heard, one of them is no other node that leads: its log is taken over."""
        without = self._who.following if self._own.gave_up_epoch else ()
        told = (Opening(epoch, opener) for opener, epoch in self._told.items() if opener not in without)
        return max(told, key=lambda opening: opening.epoch, default=NO_OPENING)

    def _asks(self) -> str:
        """Who is still to deny that another node leads; empty when nobody is."""
        slaves = self._rules.replicas_expected
        asked = {node for node, known in self._who.known.items() if self._is_answer(known)} if self._is_stronger() else set()
        answered = len(self._answered | asked)
        if self._own.is_freshly_granted or answered >= slaves:
            return ""
        if not self._others_asked:
            return "the replicas that nameservers list: one of them may lead"
        if self._nameserver_settled:
            return ""
        return f"an answer whether another node leads: from {self._more_of(slaves - answered)}, or a nameserver up for its broker_expiry_ms"

    def _who_comes_first(self, now: float) -> str:
        """Another master that recovers, for how long it may announce its epoch before this one does; empty when nobody does any more."""
        own = self._own
        mine = own.claim.rank, -own.node_id
        higher = max(((each.rank, -node_id) for node_id, each in self._who.recovering.items()), default=mine)
        if higher <= mine or own.is_freshly_granted or self._accepts_loss:
            return ""
        self._ready_at = now if self._ready_at is None else self._ready_at
        left_s = self._ready_at + _PRECEDENCE_S - now
        first = f"{own.node.rpartition('/')[0]}/{-higher[1]}"
        return f"{first}, which recovers too and has the higher claim: {left_s:.1f} s more" if left_s > 0 else ""

    def _waits_for(self, now: float) -> str:
        """What is still to be heard; empty when it is enough."""
        rules, stopped = self._rules, self._own.stopped
        if rules.replicas_expected == 0 or (stopped is Stopped.EMPTY and self._own.is_freshly_granted):
            return ""
        if stopped is Stopped.WHOLE:
            return self._others(now, "a newer table") if self._own.tables_restored else ""
        needed = min(rules.replicas_expected, rules.replicas_expected - rules.in_sync_replicas + 2)  # with q = 1 there are only so many
        if stopped.lacks_most:
            holds = "is empty" if stopped is Stopped.EMPTY else "holds a part only of a log that it was copying,"
            if any(hello.end > hello.min_offset for hello in self._heard.values()):
                return self._hear(needed, f"this store {holds} and a slave has data") or self._others(now)
            if stopped is Stopped.INCOMPLETE:
                return f"a slave that has data: this store {holds} and so far no slave has any"
            missing = rules.replicas_expected - len(self._heard)
            why = "this store is empty; the group is new only when every slave is empty too"
            return f"{self._more_of(missing)}: {why}" if missing > 0 else ""
        if rules.in_sync_replicas >= 2 and (stopped is Stopped.FAILED_SYNC or not rules.sync_flush):
            return self._hear(needed, f"confirmed data may be missing here after a {stopped}") or self._others(now)
        return self._others(now)

    def _loss_without(self, waits: str, asks: str) -> str:
        """What is given up with what it waits for, and asks, when an operator says so."""
        known = {hello.node for hello in self._ever_heard.values()} | self._who.known.keys()
        unheard = only_on_others(self._rules.replicas_expected, self._heard, known, self._filling()) if waits else ""
        rest = self._own.stopped is Stopped.INCOMPLETE and not any(hello.end > hello.min_offset for hello in self._heard.values())
        return "; ".join(filter(None, (unheard, REST_OF_A_COPY if waits and rest else "", IF_ANOTHER_LEADS if asks else "")))

    def _filling(self) -> list[str]:
        """Who may lack what the disk before acknowledged; with one copy asked no slave need have anything."""
        return [node for node, hello in sorted(self._heard.items()) if hello.is_filling and self._rules.in_sync_replicas >= 2]

    def _others(self, now: float, with_what: str = "a longer tail") -> str:
        left_s = self._started_at + self._rules.recover_wait_s - now
        if len(self._heard) >= self._rules.replicas_expected or left_s <= 0:
            return ""
        return f"slaves with {with_what}: {left_s:.1f} s more"

    def _hear(self, needed: int, why: str) -> str:
        """Together so many know all that was confirmed. One that is being filled may lack what the disk before it acknowledged."""
        filling = self._filling()
        missing = needed - (len(self._heard) - len(filling))
        if missing <= 0:
            return ""
        if filling:
            why += f"; {may_lack(filling)}, and it cannot catch up before somebody leads: --accept-loss"
        return f"{self._more_of(missing)}: {why}"

    def _more_of(self, count: int) -> str:
        return "the only slave" if (slaves := self._rules.replicas_expected) == 1 else f"{count} more of {slaves} slaves"

    def _best(self) -> Hello | None:
        """The slave to take the tail from, of equals the one whose log begins first; None when the own log is the best."""
        if self._own.stopped is Stopped.WHOLE:
            return None
        best, best_rank = None, NO_RANK if self._own.gave_up_epoch else rank(self._own.lineage, self._own.end)
        for node in sorted(self._heard):
            hello = self._heard[node]
            hello_rank = rank(hello.lineage, hello.end)
            begins_first = best is not None and hello_rank == best_rank and hello.min_offset < best.min_offset
            if hello.end > hello.min_offset and (hello_rank > best_rank or begins_first) and not self._would_lose_confirmed(hello):
                best, best_rank = hello, hello_rank
        return best

    def _would_lose_confirmed(self, hello: Hello) -> bool:
        """Whether that log, taken over, would cut what was confirmed here, or may have been with who noted this one's promotion."""
        own = self._own
        is_rival = newest_epoch(hello.lineage) == own.granted and newest_opener(hello.lineage) != own.node_id
        return (own.is_noted and is_rival and not own.stopped.lacks_most) or own.knows_beyond(self._agreed_with(hello))

    def _out_of_reach(self, best: Hello) -> str:
        """Why that tail cannot be joined to this log; empty when it can, or this log makes room for all of it."""
        start = self._agreed_with(best)
        if start >= best.min_offset or not (self._taken_over or self._own.stopped is not Stopped.EMPTY):
            return ""
        return f"{best.node} has the newest log and begins at {best.min_offset:,}, this one agrees with it only up to {start:,}"

    def _take(self, best: Hello) -> TakeOver:
        return TakeOver(best.node, best.replication_address, max(self._agreed_with(best), best.min_offset), best.end, best.lineage)

    def _agreed_with(self, other: Hello) -> PhysicalOffset:
        return common_end(ours=self._own.lineage, our_end=self._own.end, theirs=other.lineage, their_end=other.end)

    def _hidden_numbers(self) -> str:
        """What may lie in damaged bytes that another replica may still give back; empty when there are none, or nobody to ask."""
        own, has_slaves = self._own, self._rules.replicas_expected > 0
        return hidden_in(own.unread) if own.unread and has_slaves and not own.is_freshly_granted else ""

    def _missing_here(self) -> str:
        """Who knows, or knew when it left, confirmed data that this log lacks, or lacks what is known of a part to be confirmed."""
        for hello in sorted(self._ever_heard.values(), key=lambda hello: hello.node):
            common = self._agreed_with(hello)
            if self._lacks_some_of(hello):
                return f"{hello.node} knows {hello.confirmed:,} bytes to be confirmed and this log agrees with it only up to {common:,}"
        here = () if self._taken_over else sorted(self._heard.values(), key=lambda hello: hello.node)
        return next(filter(None, (self._own.lost_with(each.node, each.lineage, each.end, self._agreed_with(each)) for each in here)), "")

    def _is_outgrown(self) -> bool:
        """Whether a slave that is there has all of this log too that may be confirmed: nobody need decide what is given up."""
        if self._taken_over or self._own.is_freshly_granted or not self._own.may_give_up_epoch:
            return False
        has_more = [hello for hello in self._heard.values() if self._lacks_some_of(hello)]
        return any(hello.min_offset <= self._own.end and self._may_be_confirmed_to() <= self._agreed_with(hello) for hello in has_more)

    def _may_be_confirmed_to(self) -> PhysicalOffset:
        """Up to where something in this log may be confirmed: what none of enough slaves has is not."""
        agreed = [self._agreed_with(hello) for hello in self._heard.values() if not hello.is_filling]
        has_enough = 0 < self._rules.witnesses <= len(agreed)
        return PhysicalOffset(max(self._own.confirmed, *agreed)) if has_enough else self._own.end

    def _lacks_some_of(self, hello: Hello) -> bool:
        return hello.confirmed > self._agreed_with(hello) and hello.end > hello.min_offset
