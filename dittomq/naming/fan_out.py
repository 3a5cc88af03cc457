"""Asks nameservers one question, one after the other while they answer, beside each other when they do not."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from dittomq.errors import DittoError

T = TypeVar("T")

CALL_DEADLINE_S: Final = 3.0
SECOND_OPINION_S: Final = 1.0  # so long the others are waited for once one has answered
_TIMEOUT_S: Final = 0.3  # so long an answer is waited for before the next one is asked too

Question: TypeAlias = Callable[[str, float], Coroutine[Any, Any, T]]
"""Asks one nameserver, with a deadline in seconds; raises a DittoError."""


async def ask_in_turn(nameservers: Iterable[str], question: Question[T], is_enough: Callable[[str, T | DittoError], bool]) -> None:
    """Put the question until what came of it at one of them is enough, or all are asked; `is_enough` hears what comes, as it comes.

    The next one is asked when the last one's answer was not enough, or is not there soon. Once one has answered, and all are asked, the
    others are waited for no longer than a second opinion is worth. No question is under way when this returns.
    """
    waiting = deque(nameservers)
    outcomes: asyncio.Queue[tuple[str, T | DittoError]] = asyncio.Queue()
    asked: list[asyncio.Task[None]] = []
    heard, answered = 0, False

    async def ask(nameserver: str, deadline_s: float) -> None:
        outcome: T | DittoError
        try:
            outcome = await question(nameserver, deadline_s)
        except DittoError as error:
            outcome = error
        outcomes.put_nowait((nameserver, outcome))

    async with asyncio.TaskGroup() as tasks:
        while waiting or heard < len(asked):
            if waiting:
                asked.append(tasks.create_task(ask(waiting.popleft(), SECOND_OPINION_S if answered else CALL_DEADLINE_S)))
            came = await _next(outcomes, _TIMEOUT_S if waiting else SECOND_OPINION_S if answered else None)
            if came is not None:
                heard += 1
                answered |= not isinstance(came[1], DittoError)
            if is_enough(*came) if came is not None else not waiting:
                break
        for task in asked:
            task.cancel()


async def _next(outcomes: "asyncio.Queue[T]", timeout_s: float | None) -> T | None:
    """None when none came in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await outcomes.get()
    except TimeoutError:
        return None
