"""Whether a group comes to confirm again, once the faults are over and enough of its replicas are up."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Final

from dittomq.group_record import GroupRecord
from tests.explore.values import LEADS, LETTERS, LIFE_OF, NODES, SmallReplica, State
from tests.explore.world import SmallWorld

_ENOUGH: Final = 12


class Recovery:
    """Lets a group recover from states of another world: each node restarts, what was on its way is lost, and only some nodes come back."""

    def __init__(self, world: SmallWorld) -> None:
        self._from = world
        bounds = world.bounds
        unlimited = replace(
            bounds, epochs=bounds.epochs + _ENOUGH, appends=1 << 20, changes=1 << 20, losses=0, partial=False, unsynced=False, begun=()
        )
        self._world = type(world)(unlimited)

    def problem(self, state: State) -> str:
        """Why no replica can confirm, though an election quorum is up; "" where one always can."""
        for up in self._quorums(state):
            if not any(self._leads_and_confirms(self._restarted(state), at, up) for at in up if self._is_member(state, at)):
                return f"no replica can confirm with {''.join(LETTERS[at] for at in up)} up, which are an election quorum"
        return ""

    def _quorums(self, state: State) -> Iterator[tuple[int, ...]]:
        """All replicas, and each smallest election quorum: so many members, or the record's master."""
        record: GroupRecord = self._from.records[state[3]]
        here = [at for at in range(3) if self._is_member(state, at)]
        master = NODES.index(record.master_node)
        size = len(record.members) - min(record.copies, len(record.members)) + 1
        if len(here) >= size or master in here:
            yield 0, 1, 2
        yield from combinations(here, size)
        if master in here:
            yield (master,)

    def _is_member(self, state: State, at: int) -> bool:
        record: GroupRecord = self._from.records[state[3]]
        member = record.member_of_node(NODES[at])
        return member is not None and LIFE_OF[member.replica.incarnation] == self._from.replicas[state[at]].life

    def _restarted(self, state: State) -> State:
        world, nodes = self._world, []
        for each in state[:3]:
            replica: SmallReplica = self._from.replicas[each]
            nodes.append(world.number(replica.follows(stream=0, ack=0)))
        record = world.records.number(self._from.records[state[3]])
        confirmed = world.logs.number(self._from.logs[state[5]])
        return (*nodes, record, world.writes.number(()), confirmed, 0, 0, 0, 0)

    def _leads_and_confirms(self, state: State, at: int, up: tuple[int, ...]) -> bool:
        name, others = LETTERS[at], [LETTERS[by] for by in up if by != at]
        group: GroupRecord = self._world.records[state[3]]
        reached = "".join(LETTERS[by] for by in up if by != at and group.member_of_node(NODES[by]) is not None)
        stands = f" and reaches {reached or 'none'}"
        began = self._taken(state, lambda words: words.startswith(f"{name} stands") and words.endswith(stands))
        if began is None:
            return False
        state = self._followed(
            began,
            [*(f"{other} promises {name} epoch" for other in others), *(f"{name} takes the tail of {other}" for other in others)],
            [f"{name} gets no more promises", "the store has revision", f"{name} hears"],
        )
        if self._replica(state, at).mode != LEADS:
            return False
        follow = [f"{other} {does} {name} " for other in others for does in ("follows", "takes a byte of")]
        catch_up = [words.rstrip() if "byte" in words else words for words in follow] + [
            f"{name} gets the ack of {other}" for other in others
        ]
        state = self._followed(state, catch_up)
        state = self._with_members(state, at, up, catch_up)
        appended = self._taken(state, lambda words: words == f"{name} appends")
        state = self._followed(appended or state, catch_up)
        replica = self._replica(state, at)
        return replica.mode == LEADS and self._world.machines[replica.machine].confirmed_end == len(replica.log)

    def _with_members(self, state: State, at: int, up: tuple[int, ...], catch_up: list[str]) -> State:
        """The master writes that those who are up are the members."""
        name, members = LETTERS[at], "".join(LETTERS[by] for by in up)
        wanted = self._taken(state, lambda words: words.startswith(f"{name} sends members {members} "))
        if wanted is None:
            return state
        return self._followed(wanted, catch_up, ["the store has revision", f"{name} hears"])

    def _followed(self, state: State, *wanted: list[str]) -> State:
        """After all steps whose words begin so, the first ones first, until none is left."""
        beginnings = [each for group in wanted for each in group]
        for _ in range(100):
            after = next((found for each in beginnings if (found := self._taken(state, _begins_with(each))) not in (None, state)), None)
            if after is None:
                return state
            state = after
        raise AssertionError("a recovery does not end")

    def _taken(self, state: State, is_wanted: Callable[[str], bool]) -> State | None:
        return next((reached for words, reached, _ in self._world.steps(state) if is_wanted(words) and "restarts" not in words), None)

    def _replica(self, state: State, at: int) -> SmallReplica:
        found: SmallReplica = self._world.replicas[state[at]]
        return found


def _begins_with(log_start: str) -> Callable[[str], bool]:
    return lambda words: words.startswith(log_start)
