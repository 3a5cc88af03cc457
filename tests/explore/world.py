"""A small world of three replicas and one store that obeys the real deciders, as tuples of small numbers.

A step is one thing that a node, a message or the store does: what is on its way may arrive at any later time, or never. Everything that two
states may share is kept once, by number, and each local step is computed once: replicas, records, sets of writes, and states of deciders.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any, Final

from dittomq.doors.coordination import Conflict, Versioned, WriteUnknown, Written
from dittomq.group_record import GroupRecord, Member
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.election import Election
from dittomq.replication.election_events import (
    Answered,
    BecomeMaster,
    Command,
    ElectionRules,
    ElectionTick,
    EndElection,
    Event,
    Position,
    PromiseAnswered,
    PromiseSelf,
    PromiseUnanswered,
    RecordRead,
    SelfPromised,
    SentBy,
    StandOrder,
    TailTaken,
    Unanswered,
    WriteEnded,
    WriteRecord,
)
from dittomq.replication.election_states import Attempt
from dittomq.replication.promise import PromiseRequest, decide_ask, decide_promise
from tests.explore.leader import MasterDeciders
from tests.explore.machines import Numbered, Renaming, copied, frozen
from tests.explore.values import (
    BIRTH,
    FOLLOWS,
    LEADS,
    LETTERS,
    LIFE_OF,
    LOST_DISK,
    LOST_TAIL,
    NODES,
    NONE,
    RECORD,
    STANDS,
    WHOLE,
    Effect,
    ReplicaFacts,
    SmallBounds,
    SmallReplica,
    State,
    common_length,
    letters_of,
    replica_id,
)

_WRITTEN: Final = 1
_ORDER: Final = StandOrder(SentBy.OPERATOR)  # it lets a candidate stand whether a master is heard or not, which a safe group must bear
_LATER: Final = 1_000.0
_TURNS: Final = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


class SmallWorld:
    """All steps of one world. The drivers' duties are methods, so that a deliberate bug can leave one out."""

    def __init__(self, bounds: SmallBounds) -> None:
        self.bounds = bounds
        self.replicas = Numbered()
        self.records = Numbered()
        self.writes = Numbered()
        self.logs = Numbered()
        self.machines = Numbered(frozen)
        self._rules = [ElectionRules(node, 2, bounds.copies, automatic=True, allow_data_loss=False) for node in NODES]
        self._facts: list[ReplicaFacts] = []
        self._signatures = Numbered()
        self._standing = Numbered()
        self._positions: dict[tuple[int, ...], Position] = {}
        self._steps: dict[tuple[Any, ...], tuple[int, Any]] = {}
        self._alone: dict[tuple[int, ...], tuple[Effect, ...]] = {}
        self._pairs: dict[tuple[int, ...], tuple[Effect, ...]] = {}
        self._stands: dict[tuple[int, ...], tuple[Effect, ...]] = {}
        self._attempts: dict[tuple[int, ...], tuple[int, Any] | None] = {}
        self._arrivals: dict[tuple[int, int], tuple[tuple[str, int], ...]] = {}
        self._confirmations: dict[tuple[int, int], tuple[int, str]] = {}
        self._tidied: dict[tuple[int, int], int] = {}
        self._renamed: list[dict[int, int]] = [{} for _ in _ORDERS]
        self._renamed_records: list[dict[int, int]] = [{} for _ in _ORDERS]
        self._renamed_writes: list[dict[int, int]] = [{} for _ in _ORDERS]
        self._renamings = [Renaming(names) for names in _NAMES]
        self._holds: dict[tuple[int, int], bool] = {}
        self._counted: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}

    # Where it begins

    def first(self) -> State:
        """A leads in epoch 1, and the others follow it."""
        members = tuple(Member(NODES[at], replica_id(at, WHOLE), "") for at in range(self.bounds.members))
        record = GroupRecord(BIRTH, Epoch(1), 1, members[0].replica, members, self.bounds.copies, write="1")
        leader = MasterDeciders(record, "1", end=0, copies=self.bounds.copies, own=replica_id(0, WHOLE), node=NODES[0])
        for at in (1, 2):
            leader.take(("stream", NODES[at], replica_id(at, WHOLE), 0))
            leader.take(("ack", NODES[at], replica_id(at, WHOLE), 0))
        master = self.number(SmallReplica(mode=LEADS, epoch=1, machine=self.machines.number(leader)))
        slave = self.number(SmallReplica(stream=1))
        state: State = (master, slave, slave, self.records.number(record), self.writes.number(()), self.logs.number(b""), 2, 0, 0, 0)
        for begun in self.bounds.begun:
            state = next(reached for words, reached, _ in self.steps(state) if words.startswith(begun))
        return state

    def number(self, replica: SmallReplica) -> int:
        """The number of a replica, and what is asked of it all the time."""
        found = self.replicas.number(replica)
        if found == len(self._facts):
            mode, ack = replica.mode, replica.ack >> 4
            streams = (1 << replica.stream | 1 << ack) & ~1
            self._facts.append(
                ReplicaFacts(
                    mode,
                    self._signatures.number(replica._replace(machine=NONE)),
                    self._standing.number((replica.adopted, replica.promised, replica.life, len(replica.log))),
                    1 << replica.epoch if mode == LEADS else 0,
                    streams,
                    self.machines[replica.machine].confirmed_end if mode == LEADS else 0,
                )
            )
        return found

    # What may happen

    def steps(self, state: State) -> list[tuple[str, State, str]]:
        """Each step that the world may take, where it leads, and the promise that is broken by that; "" for none."""
        nodes, record, writes, appends, changes, losses = state[:3], state[3], state[4], state[7], state[8], state[9]
        bounds, facts, after = self.bounds, self._facts, self._after
        budget = (appends < bounds.appends) + 2 * (changes < bounds.changes) + 4 * (losses < bounds.losses)
        modes = [facts[each].mode for each in nodes]
        found = []
        for at, one, two in _TURNS:
            own, mode = nodes[at], modes[at]
            alone = (at, own, record, budget)
            effects = self._alone.get(alone)
            if effects is None:
                effects = self._alone[alone] = tuple(self._steps_alone(at, self.replicas[own], record, budget))
            if mode == FOLLOWS:
                stand = (at, own, record, facts[nodes[one]].standing, facts[nodes[two]].standing)
                stands = self._stands.get(stand)
                if stands is None:
                    others = ((one, nodes[one]), (two, nodes[two]))
                    stands = self._stands[stand] = tuple(self._steps_of_standing(at, own, record, others))
                effects += stands
            found += [after(state, at, effect, NONE) for effect in effects]
            for other in (one, two):
                if mode == STANDS or modes[other] == LEADS:
                    effects = self._of_pair((at, own, other, nodes[other]))
                    found += [after(state, at, effect, other) for effect in effects]
        for write in self.writes[writes]:
            if self.records[write].revision == self.records[record].revision + 1:
                found.append(self._applied(state, write))
        return found

    def _of_pair(self, key: tuple[int, int, int, int]) -> tuple[Effect, ...]:
        found = self._pairs.get(key)
        if found is None:
            at, own, other, second = key
            found = self._pairs[key] = tuple(self._steps_of_pair(at, self.replicas[own], other, self.replicas[second]))
        return found

    def _after(self, state: State, at: int, effect: Effect, other: int) -> tuple[str, State, str]:
        words, own, other_one, write, appends, changes, losses, opened = effect
        nodes = list(state[:3])
        nodes[at] = own
        if other != NONE:
            nodes[other] = other_one
        writes = state[4]
        if write != NONE:
            writes = self.writes.number(tuple(sorted({*self.writes[writes], write})))
        reached, problem = self._settled(
            nodes, state[3], writes, state[5], state[6] | opened, state[7] + appends, state[8] + changes, state[9] + losses
        )
        if opened and not problem:
            problem = self._wrongly_opened(state[6], opened, self.replicas[own], reached)
        return words, reached, problem

    def _settled(self, nodes: list[int], *rest: int) -> tuple[State, str]:
        """The state with what is confirmed by now. Streams and acks in an epoch whose master leads no more are nothing."""
        one, two, three = [self._facts[each] for each in nodes]
        alive = one.leads | two.leads | three.leads
        if (one.streams | two.streams | three.streams) & ~alive:
            nodes = [self._tidy(each, alive) for each in nodes]
        problem, confirmed = "", rest[2]
        for facts, each in ((one, nodes[0]), (two, nodes[1]), (three, nodes[2])):
            if facts.confirmed:
                key = (each, confirmed)
                found = self._confirmations.get(key)
                if found is None:
                    found = self._confirmations[key] = self._confirm(self.replicas[each].log, facts.confirmed, confirmed)
                confirmed, said = found
                problem = problem or said
        return (*nodes, *rest[:2], confirmed, *rest[3:]), problem

    def _tidy(self, number: int, alive: int) -> int:
        key = (number, alive)
        found = self._tidied.get(key)
        if found is None:
            replica = self.replicas[number]
            stream = replica.stream if alive >> replica.stream & 1 else 0
            ack = replica.ack if alive >> (replica.ack >> 4) & 1 else 0
            found = self._tidied[key] = self.number(replica._replace(stream=stream, ack=ack))
        return found

    def _confirm(self, log: bytes, end: int, confirmed: int) -> tuple[int, str]:
        """All that was confirmed by now, and what is wrong with it."""
        known: bytes = self.logs[confirmed]
        length = min(end, len(known))
        if log[:length] != known[:length]:
            return confirmed, "two different bytes were confirmed at one offset"
        return (self.logs.number(log[:end]) if end > len(known) else confirmed), ""

    def _wrongly_opened(self, before: int, opened: int, master: SmallReplica, reached: State) -> str:
        if before & opened:
            return f"two masters have opened epoch {master.epoch}"
        if before < opened and not master.log.startswith(self.logs[reached[5]]):  # one that opens late is deposed already
            return f"the master of epoch {master.epoch} begins without a confirmed byte"
        return ""

    def _applied(self, state: State, write: int) -> tuple[str, State, str]:
        """The store puts a write in place; its answer is on its way, if its writer still waits for it."""
        record: GroupRecord = self.records[write]
        at = NODES.index(record.master_node)
        nodes = list(state[:3])
        writer: SmallReplica = self.replicas[nodes[at]]
        if writer.machine != NONE and self._awaited(writer) == write:
            nodes[at] = self.number(writer._replace(answer=_WRITTEN))
        left = tuple(each for each in self.writes[state[4]] if self.records[each].revision > record.revision)
        words = f"the store has revision {record.revision}: epoch {record.epoch}, master {LETTERS[at]}, members {letters_of(record)}"
        return words, *self._settled(nodes, write, self.writes.number(left), *state[5:])

    def _awaited(self, replica: SmallReplica) -> int:
        """The write whose answer a replica waits for, by number."""
        machine = self.machines[replica.machine]
        if isinstance(machine, Election):
            waits = machine.state in (Attempt.WRITING, Attempt.RESENT) and machine._proposal is not None
            return self.records.number(machine._proposal) if waits else NONE
        return self.records.number(machine.sent) if machine.awaits_answer else NONE

    # What one replica does

    def _steps_alone(self, at: int, own: SmallReplica, record: int, budget: int) -> Iterator[Effect]:
        name = LETTERS[at]
        if own.mode == LEADS:
            yield from self._steps_of_master(at, own, record, budget)
        elif own.mode == STANDS:
            yield from self._steps_of_candidate(at, own, record)
        if own.mode != FOLLOWS:
            yield Effect(f"{name} restarts", self.number(self.restarted(own.follows(log=own.log[: len(own.log) - own.unsynced]))))
        elif (forgetful := self.restarted(own)) != own:
            yield Effect(f"{name} restarts", self.number(forgetful))
        if budget & 4 and own.life == WHOLE:
            fresh = SmallReplica(adopted=0, promised=0, life=LOST_DISK)
            yield Effect(f"{name} loses its disk", self.number(fresh), losses=1)
            for end in range(len(own.log) * self.bounds.tails):
                short = own.follows(log=own.log[:end], life=LOST_TAIL, stream=0, ack=0)
                yield Effect(f"{name} loses its log behind {end}, and is a new incarnation", self.number(short), losses=1)

    def _steps_of_master(self, at: int, own: SmallReplica, record: int, budget: int) -> Iterator[Effect]:
        name, leader = LETTERS[at], self.machines[own.machine]
        if budget & 1:
            log = own.log + bytes((own.epoch,))
            unsynced = own.unsynced + self.bounds.unsynced
            machine, _ = self.step(own.machine, "grew", len(log), len(log) - unsynced)
            yield Effect(f"{name} appends", self.number(own._replace(log=log, machine=machine, unsynced=unsynced)), appends=1)
        if own.unsynced:
            machine, _ = self.step(own.machine, "grew", len(own.log), len(own.log))
            yield Effect(f"{name} syncs", self.number(own._replace(machine=machine, unsynced=0)))
        if budget & 2:
            yield from self._steps_of_members(at, own, leader)
        if leader.awaits_answer:
            yield from self._outcome(at, own, record)
            machine, _ = self.step(own.machine, "ended", WriteUnknown(""))
            yield Effect(f"{name} does not hear how its write went", self.number(own._replace(machine=machine, answer=0)))
        yield from self._master_reads(at, own, record)

    def _steps_of_members(self, at: int, own: SmallReplica, leader: MasterDeciders) -> Iterator[Effect]:
        """The master wants other members: all that may join do, and any of the others leave."""
        name = LETTERS[at]
        for leaving in leader.may_leave:
            machine, change = self.step(own.machine, "decide", leaving)
            after = self.number(own._replace(machine=machine))
            if change is not None:
                words = f"{name} sends members {letters_of(change)} at revision {change.revision}"
                yield Effect(words, after, write=self.records.number(change), changes=1)
            elif machine != own.machine:
                yield Effect(f"{name} proposes other members", after)
        if leader.is_proposed:
            machine, _ = self.step(own.machine, "give up")
            yield Effect(f"{name} gives its proposal up", self.number(own._replace(machine=machine)))

    def _outcome(self, at: int, own: SmallReplica, record: int) -> Iterator[Effect]:
        """The store's answer to a master's write, if there is one."""
        sent = self.machines[own.machine].sent
        if own.answer != _WRITTEN and self.records[record].revision < sent.revision:
            return
        outcome = Written(str(sent.revision)) if own.answer == _WRITTEN else Conflict()
        machine, _ = self.step(own.machine, "ended", outcome)
        yield Effect(f"{LETTERS[at]} hears how its write went", self.number(own._replace(machine=machine, answer=0)))

    def _master_reads(self, at: int, own: SmallReplica, record: int) -> Iterator[Effect]:
        found: GroupRecord = self.records[record]
        machine, is_fenced = self.step(own.machine, "read", Versioned(found, str(found.revision)), key=record)
        if machine != own.machine:
            after = own.follows() if is_fenced else own._replace(machine=machine)
            words = "and is deposed" if is_fenced else f"members {letters_of(found)}"
            yield Effect(f"{LETTERS[at]} reads revision {found.revision}, {words}", self.number(after))

    def _steps_of_candidate(self, at: int, own: SmallReplica, record: int) -> Iterator[Effect]:
        election: Election = self.machines[own.machine]
        found: GroupRecord = self.records[record]
        match election.state:
            case Attempt.PROMISING:
                silent = sorted(election._targets.keys() - election._promises.keys())
                events: list[Event] = [PromiseUnanswered(node) for node in silent]
                yield self._handed(at, own, events, f"{LETTERS[at]} gets no more promises")
            case Attempt.WRITING if own.answer == _WRITTEN:
                events = [WriteEnded(Written(str(election._proposal.revision if election._proposal else "")))]
                yield self._handed(at, own._replace(answer=0), events, f"{LETTERS[at]} hears that its record is written")
            case Attempt.WRITING if election._proposal is not None and found.revision >= election._proposal.revision:
                events = [WriteEnded(Conflict()), RecordRead(Versioned(found, str(found.revision)))]
                yield self._handed(at, own, events, f"{LETTERS[at]} hears of a conflict")
            case Attempt.IN_DOUBT if election._proposal is not None and found.revision >= election._proposal.revision:
                events = [ElectionTick(), WriteEnded(Conflict()), RecordRead(Versioned(found, str(found.revision)))]
                yield self._handed(at, own, events, f"{LETTERS[at]} sends its record again, and reads revision {found.revision}")
        if election.state is Attempt.WRITING:
            yield self._handed(
                at, own._replace(answer=0), [WriteEnded(WriteUnknown(""))], f"{LETTERS[at]} does not hear how its write went"
            )

    def _handed(self, at: int, own: SmallReplica, events: list[Event], words: str) -> Effect:
        """A candidate takes these events, and its driver does what the election says."""
        machine, commands = own.machine, ()
        for event in events:
            machine, more = self.step(machine, "event", event)
            commands = (*commands, *more)
        after, write, opened = self._obeyed(at, own._replace(machine=machine), commands)
        return Effect(words, self.number(after), write=write, opened=opened)

    def _obeyed(self, at: int, own: SmallReplica, commands: tuple[Command, ...]) -> tuple[SmallReplica, int, int]:
        """The candidate after its driver has carried these out, its write, and the epoch that it opened."""
        for command in commands:
            match command:
                case EndElection():
                    return own.follows(), NONE, 0
                case BecomeMaster(elected):
                    if not self.may_open(own, elected.record.epoch):
                        return own.follows(), NONE, 0
                    return self._opened(at, own, command), NONE, 1 << elected.record.epoch
                case WriteRecord(record) if self.machines[own.machine].state is Attempt.WRITING:
                    return own, self.records.number(record), 0
        return own, NONE, 0

    def _opened(self, at: int, own: SmallReplica, command: BecomeMaster) -> SmallReplica:
        elected, end = command.elected, len(own.log)
        leader = MasterDeciders(
            elected.record,
            elected.version,
            end=end,
            copies=self.bounds.copies,
            own=replica_id(at, own.life),
            node=NODES[at],
        )
        epoch = elected.record.epoch
        return own._replace(mode=LEADS, epoch=epoch, adopted=epoch, start=end, machine=self.machines.number(leader), answer=0)

    # What two replicas do

    def _steps_of_pair(self, at: int, own: SmallReplica, by: int, other: SmallReplica) -> Iterator[Effect]:
        if other.mode == LEADS:
            yield from self._follow(at, own, by, other)
            if own.ack >> 4 == other.epoch:
                yield self._acked(at, own, by, other)
            if self.bounds.parts and self.machines[other.machine].streams(NODES[at]):
                yield self._parted(at, own, by, other)
        if own.mode == STANDS:
            election: Election = self.machines[own.machine]
            if election.state is Attempt.PROMISING and NODES[by] in election._targets.keys() - election._promises.keys():
                yield self._promised(at, own, by, other)
            elif election.state is Attempt.TAKING_TAIL and election._winner().node == NODES[by]:
                yield from self._tail(at, own, by, other)

    def _follow(self, at: int, own: SmallReplica, by: int, master: SmallReplica) -> Iterator[Effect]:
        """Shake hands: truncate what differs. Then take one byte at a time."""
        epoch = master.epoch
        if max(own.promised, own.adopted) > epoch or (own.mode == LEADS and own.epoch >= epoch):
            return
        if own.stream != epoch:
            common = common_length(own.log, master.log)
            after = own.follows(log=own.log[:common], promised=epoch, stream=epoch, ack=0)
            machine, _ = self.step(master.machine, "stream", NODES[at], replica_id(at, own.life), common)
            words = f"{LETTERS[at]} follows {LETTERS[by]} in epoch {epoch} from {common}"
        elif len(own.log) < len(master.log):
            end = len(own.log) + 1
            after, machine = own._replace(log=master.log[:end]), master.machine
            words = f"{LETTERS[at]} takes a byte of {LETTERS[by]}, and holds {end}"
        else:
            return
        after = self.adopting(after, epoch, master.start)
        if self.acknowledges(after, epoch, master.start):
            after = after._replace(ack=(epoch << 4) + len(after.log) + 1)
        yield Effect(words, self.number(after), self.number(master._replace(machine=machine)))

    def _acked(self, at: int, own: SmallReplica, by: int, master: SmallReplica) -> Effect:
        end = (own.ack & 15) - 1
        machine, _ = self.step(master.machine, "ack", NODES[at], replica_id(at, own.life), end)
        after, words = self.number(own._replace(ack=0)), f"{LETTERS[by]} gets the ack of {LETTERS[at]} at {end}"
        return Effect(words, after, self.number(master._replace(machine=machine)))

    def _parted(self, at: int, own: SmallReplica, by: int, master: SmallReplica) -> Effect:
        machine, _ = self.step(master.machine, "end", NODES[at])
        stream = own.stream if own.stream != master.epoch else 0
        ack = own.ack if own.ack >> 4 != master.epoch else 0
        after, words = own._replace(stream=stream, ack=ack), f"the stream of {LETTERS[at]} from {LETTERS[by]} ends"
        return Effect(words, self.number(after), self.number(master._replace(machine=machine)))

    def _promised(self, at: int, own: SmallReplica, by: int, other: SmallReplica) -> Effect:
        """A request arrives, and its answer."""
        request = PromiseRequest(NODES[at], replica_id(at, own.life), Epoch(own.epoch), BIRTH, SentBy.OPERATOR)
        is_granted = decide_promise(self.position(by, other), request)
        if is_granted:
            stops = other.follows() if other.mode == LEADS else other  # a candidate goes on, and finds out when it is to lead
            other = stops._replace(promised=own.epoch, stream=0)
        verb = "promises" if is_granted else "refuses"
        events: list[Event] = [PromiseAnswered(self.position(by, other), is_granted)]
        effect = self._handed(at, own, events, f"{LETTERS[by]} {verb} {LETTERS[at]} epoch {own.epoch}")
        return effect._replace(other=self.number(other))

    def _tail(self, at: int, own: SmallReplica, by: int, source: SmallReplica) -> Iterator[Effect]:
        """Fetch the log that won, whole or in part; in part it is stopped by a restart."""
        election: Election = self.machines[own.machine]
        unchanged, name = self.number(source), LETTERS[by]
        if source.promised != own.epoch or (source.adopted, len(source.log)) != election._winner().log_rank:
            yield Effect(f"{name} has moved on: {LETTERS[at]} fetches no tail", self.number(own.follows()), unchanged)
            return
        taken = self.took_over(own._replace(log=source.log), source)
        effect = self._handed(at, taken, [TailTaken(self.position(at, taken))], f"{LETTERS[at]} takes the tail of {name}")
        yield effect._replace(other=unchanged)
        if self.bounds.partial:
            for end in range(common_length(own.log, source.log), len(source.log)):
                part = self.took_part(own.follows(log=source.log[:end]), source)
                words = f"{LETTERS[at]} takes the tail of {name} up to {end}, and restarts"
                yield Effect(words, self.number(part), unchanged)

    # Standing

    def _steps_of_standing(self, at: int, own: int, record: int, others: tuple[tuple[int, int], tuple[int, int]]) -> Iterator[Effect]:
        """How a replica stands, by whom it reaches of the others."""
        replica: SmallReplica = self.replicas[own]
        if replica.promised >= self.bounds.epochs:
            return
        for reached in ((), others[:1], others[1:], others):
            key = (at, self._facts[own].standing, record, *(fact for by, each in reached for fact in (by, self._facts[each].standing)))
            if key in self._attempts:
                found = self._attempts[key]
            else:
                nodes = {NODES[by]: self.position(by, self.replicas[each]) for by, each in reached}
                found = self._attempts[key] = self._stand(at, replica, self.records[record], nodes)
            if found is not None:
                machine, commands = found
                election: Election = self.machines[machine]
                epoch = election._epoch
                stands = replica._replace(promised=epoch, mode=STANDS, epoch=epoch, stream=0, machine=machine)
                after, write, opened = self._obeyed(at, stands, commands)
                revision = self.records[record].revision
                whom = "".join(LETTERS[by] for by, _ in sorted(reached)) or "none"
                words = f"{LETTERS[at]} stands in epoch {epoch} at revision {revision} and reaches {whom}"
                yield Effect(words, self.number(after), write=write, opened=opened)

    def _stand(self, at: int, own: SmallReplica, record: GroupRecord, nodes: dict[str, Position]) -> tuple[int, tuple[Command, ...]] | None:
        """Read the record, ask those that are reached, and promise itself. None where that comes to nothing, or beyond the bounds."""
        election = Election(self._rules[at], self.position(at, own), _ORDER, (), birth="", write=f"e{record.revision}", now=0.0)
        election.begin()
        commands = election.handle(RecordRead(Versioned(record, str(record.revision))), 0.0)
        for node in sorted(election._targets):
            if election.state is Attempt.ASKING:
                asked: Event = Unanswered(node)
                if node in nodes:
                    asked = Answered(nodes[node], decide_ask(nodes[node], NODES[at], SentBy.OPERATOR))
                commands = election.handle(asked, 0.0)
        promise = next((each for each in commands if isinstance(each, PromiseSelf)), None)
        if promise is None or promise.epoch > self.bounds.epochs or not nodes.keys() <= election._targets.keys():
            return None
        own = own._replace(promised=promise.epoch)
        commands = election.handle(SelfPromised(self.position(at, own)), 0.0)
        return self.machines.number(_without_time(election)), tuple(commands)

    # What the drivers owe; a deliberate bug leaves one of these out

    def adopting(self, slave: SmallReplica, epoch: int, start: int) -> SmallReplica:
        """A slave adopts its master's epoch once it matches its log, and holds it up to where the epoch begins."""
        return slave._replace(adopted=epoch) if len(slave.log) >= start else slave

    def acknowledges(self, slave: SmallReplica, epoch: int, start: int) -> bool:
        """Whether a slave's acks say that it has adopted the epoch."""
        return slave.adopted == epoch

    def restarted(self, replica: SmallReplica) -> SmallReplica:
        """What is durable stays: the log, what was adopted and what was promised."""
        return replica

    def may_open(self, candidate: SmallReplica, epoch: int) -> bool:
        """Whether the promise still holds when the record names this replica."""
        return candidate.promised == epoch

    def took_over(self, candidate: SmallReplica, source: SmallReplica) -> SmallReplica:
        """With the whole tail the candidate takes over the adopted epoch."""
        return candidate._replace(adopted=source.adopted)

    def took_part(self, candidate: SmallReplica, source: SmallReplica) -> SmallReplica:
        """A tail that was fetched in part changes no adopted epoch."""
        return candidate

    # The deciders

    def position(self, at: int, replica: SmallReplica) -> Position:
        """Where a replica stands; what it knows to be confirmed is nothing, as after a restart."""
        key = (at, replica.adopted, replica.promised, replica.life, len(replica.log))
        found = self._positions.get(key)
        if found is None:
            found = self._positions[key] = Position(
                node=NODES[at],
                replica=replica_id(at, replica.life),
                birth=BIRTH if replica.adopted else "",
                adopted=Epoch(replica.adopted),
                log_end=PhysicalOffset(len(replica.log)),
                promised=Epoch(replica.promised),
                confirmed=PhysicalOffset(0),
            )
        return found

    def step(self, machine: int, kind: str, *facts: Any, key: Any = None) -> tuple[int, Any]:
        """A decider's state after an event, by number, and what it said."""
        memo = (machine, kind, facts if key is None else key)
        found = self._steps.get(memo)
        if found is None:
            after = copied(self.machines[machine])
            if isinstance(after, Election):
                said: Any = tuple(after.handle(facts[0], 0.0 if not isinstance(facts[0], ElectionTick) else _LATER))
                _without_time(after)
            else:
                said = after.take((kind, *facts))
            found = self._steps[memo] = (self.machines.number(after), said)
        return found

    # Symmetry

    def canonical(self, state: State) -> int:
        """A hash that is equal for two states which differ in the names of replicas only."""
        one, two, three = [self._facts[each].signature for each in state[:3]]
        if len({one, two, three}) == 3:
            return hash(self._renamed_state(state, _ORDER_OF[one < two, two < three, one < three]))
        signatures = (one, two, three)
        wanted = sorted(signatures)
        names = [at for at, order in enumerate(_ORDERS) if [signatures[each] for each in order] == wanted]
        return hash(min(self._renamed_state(state, at) for at in names))

    def _renamed_state(self, state: State, at: int) -> tuple[int, ...]:
        order, renamed_nodes = _ORDERS[at], self._renamed[at]
        nodes = [renamed_nodes[state[each]] if state[each] in renamed_nodes else self._rename(state[each], at) for each in order]
        record, writes = self._renamed_records[at].get(state[3]), self._renamed_writes[at].get(state[4])
        if record is None:
            record = self._renamed_records[at][state[3]] = self._rename_record(state[3], at)
        if writes is None:
            renamed_all = tuple(sorted(self._rename_record(each, at) for each in self.writes[state[4]]))
            writes = self._renamed_writes[at][state[4]] = self.writes.number(renamed_all)
        return (*nodes, record, writes, *state[5:])

    def _rename(self, number: int, at: int) -> int:
        replica: SmallReplica = self.replicas[number]
        if replica.machine != NONE:
            machine = self._renamings[at].of(self.machines[replica.machine])
            replica = replica._replace(machine=self.machines.number(machine))
        found = self._renamed[at][number] = self.number(replica)
        return found

    def _rename_record(self, number: int, at: int) -> int:
        return self.records.number(self._renamings[at].of(self.records[number]))

    # What must be true

    def broken(self, state: State) -> str:
        """The promise that the state breaks; "" for none."""
        confirmed = state[5]
        needed, members = self._members(state[RECORD])
        holding = 0
        for at, life in members:
            number = state[at]
            holds = self._holds.get((number, confirmed))
            if holds is None:
                holds = self._holds[number, confirmed] = self.replicas[number].log.startswith(self.logs[confirmed])
            holding += holds or self.replicas[number].life != life
        if holding < needed:
            return f"what was confirmed is held by {holding} members of the record, and {needed} are needed"
        return ""

    def _members(self, record: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        found = self._counted.get(record)
        if found is None:
            group: GroupRecord = self.records[record]
            members = tuple((NODES.index(each.node), LIFE_OF[each.replica.incarnation]) for each in group.members)
            found = self._counted[record] = (group.needed, members)
        return found


_ORDERS: Final = tuple(permutations(range(3)))
"""At which place which replica stands after a renaming."""
_ORDER_OF: Final = {
    (ranks[0] < ranks[1], ranks[1] < ranks[2], ranks[0] < ranks[2]): _ORDERS.index(tuple(sorted(range(3), key=ranks.__getitem__)))
    for ranks in permutations(range(3))
}
_NAMES: Final = [
    {
        old: new
        for place, at in enumerate(order)
        for old, new in ((NODES[at], NODES[place]), *((f"{p}{at}", f"{p}{place}") for p in "uvijk"))
    }
    for order in _ORDERS
]


def _without_time(election: Election) -> Election:
    """All waits may be over, and what matters no more is forgotten, so no two states differ in it alone."""
    election._until = election._asked_at = 0.0
    election._unknown_since = None if election._unknown_since is None else _LATER
    election._answers = {}
    if election.state not in (Attempt.PROMISING, Attempt.TAKING_TAIL):
        election._targets, election._silent = {}, set()
        election._promises = {
            node: replace(each, position=replace(each.position, adopted=Epoch(0), log_end=PhysicalOffset(0), promised=Epoch(0)))
            for node, each in election._promises.items()
            if each.is_promised
        }
    return election
