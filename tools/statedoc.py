"""Draw the tables of moves into docs/state-machines.md, between two marks. Run by `make docs`."""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from dittomq.replication import election_states, master_states, membership_states, slave_states
from dittomq.replication.state_machine import Kind, Transitions, name_of

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "state-machines.md"

_BEGIN = "<!-- written by `make docs` from the tables in dittomq/replication/*_states.py -->\n"
_END = "<!-- end of what is written by `make docs` -->\n"
_INTRODUCTION = (
    "\nEach table is the one that the code obeys: a decider that moved otherwise would stop with `IllegalTransition`. "
    "What the other side says in a state that does not take it ends the stream.\n"
)

TABLES: tuple[tuple[Transitions[Any], str], ...] = (
    (master_states.TRANSITIONS, "One slave, as its master sees it. It takes what the slave says, and what the driver reports."),
    (slave_states.TRANSITIONS, "The master, as one of its slaves sees it. Wait, truncate and stream are the master's handshake results."),
    (membership_states.FOLLOWING_TRANSITIONS, "What a replica is to its master. Its acks count once it has adopted the epoch."),
    (membership_states.RECORD_WRITE_MOVES, "A master's change of the members: one write of the group record at a time."),
    (election_states.ELECTION_MOVES, "One attempt of one candidate."),
)


def document() -> str:
    """The whole page: what stands around the marks is kept."""
    page = TARGET.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    drawn = "\n".join(line for moves, words in TABLES for line in _section(moves, words))
    return f"{before}{_BEGIN}{_INTRODUCTION}\n{drawn}{_END}{after}"


def _section(moves: Transitions[Any], words: str) -> Iterator[str]:
    yield f"### {moves.title}"
    yield ""
    yield words
    yield ""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {moves.first.name}"
    yield from _arrows(moves)
    yield "```"
    yield ""
    yield "| state | means | takes |"
    yield "|---|---|---|"
    for state in type(moves.first):
        yield f"| {state.name} | {state.value} | {_taken(moves, state)} |"
    yield ""
    meanings = dict.fromkeys(kind for row in moves.rows.values() for kind in row if isinstance(kind, Enum) and kind not in moves.said)
    if meanings:
        yield "| taken | means |"
        yield "|---|---|"
        yield from (f"| {name_of(kind)} | {kind.value} |" for kind in meanings)
        yield ""


def _arrows(moves: Transitions[Any]) -> Iterator[str]:
    """One arrow for each pair of states; a state that stays what it is has none."""
    for state, row in moves.rows.items():
        for after in type(moves.first):
            kinds = [name_of(kind) for kind, nexts in row.items() if after in nexts]
            if kinds and after is not state:
                yield f"    {state.name} --> {after.name}: {', '.join(kinds)}"


def _taken(moves: Transitions[Any], state: Enum) -> str:
    """What it takes and where that leads, then what ends the stream because it is out of turn."""
    if moves.is_final(state):
        return "nothing"
    alike: dict[tuple[str, ...], list[str]] = {}
    for kind, nexts in moves.rows[state].items():
        alike.setdefault(tuple("stays" if after is state else after.name for after in nexts), []).append(name_of(kind))
    taken = [f"{', '.join(kinds)} → {' or '.join(nexts)}" for nexts, kinds in alike.items()]
    return "<br>".join([*taken, *_out_of_turn(moves, moves.rows[state])])


def _out_of_turn(moves: Transitions[Any], row: Any) -> list[str]:
    untimely: list[Kind] = [kind for kind in moves.said if kind not in row]
    return [f"out of turn: {', '.join(map(name_of, untimely))}"] if untimely else []


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
