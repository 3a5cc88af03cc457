"""What is given up where an operator lets a node lead without what it waits for, in words. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from dittomq.replication.events import may_lack

IF_ANOTHER_LEADS: Final = "what another node confirms, if one leads: too few have denied it"
REST_OF_A_COPY: Final = "the rest of a log that it was copying: no slave that is heard has anything of it"


def only_on_others(slaves: int, heard: Collection[str], known: Iterable[str], filling: Sequence[str] = ()) -> str:
    """Which of so many slaves are not heard, by name as far as they are among the `known` nodes; empty when all are.

    Of those heard, the ones `filling` may lack what the disks before theirs had.
    """
    missing, names = slaves - len(heard), sorted(set(known) - set(heard))
    who = " and ".join(names) if len(names) == missing else f"{missing} of {slaves}"
    some = f", {' and '.join(names)} among them" if 0 < len(names) < missing else ""
    parts = (f"what only slaves hold that are not heard: {who}{some}" if missing > 0 else "", may_lack(filling) if filling else "")
    return "; ".join(filter(None, parts))


def hidden_in(unread: Sequence[tuple[int, int]]) -> str:
    """What may lie in damaged bytes, as a clause."""
    size = sum(end - start for start, end in unread)
    return f"which may hold the newest messages of queues: {size:,} from {unread[0][0]:,} on"
