import asyncio
import socket
from collections.abc import Iterator

import pytest

from tests.simulation.loop import Deadlock, Livelock, SimulatedLoop, SimulatedTask


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = SimulatedLoop()
    yield loop
    loop.close()


def test_a_wait_for_what_nobody_does_is_a_deadlock_with_the_waiter_s_stack(loop: SimulatedLoop) -> None:
    async def waits_forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_forever"):
        loop.run_until_complete(waits_forever())


def test_a_loop_that_never_lets_time_pass_is_found(loop: SimulatedLoop) -> None:
    async def spins() -> None:
        while True:  # noqa: ASYNC110  # the mistake to be found
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="spins"):
        loop.run_until_complete(spins())


def test_tasks_are_cancelled_in_the_order_in_which_they_were_made(loop: SimulatedLoop) -> None:
    async def story() -> list[int]:
        cancelled = []

        async def work(number: int) -> None:
            try:
                await asyncio.sleep(9)
            finally:
                cancelled.append(number)

        with pytest.raises(TimeoutError):  # noqa: PT012  # the block is what times out
            async with asyncio.timeout(1), asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(work(number))
        return cancelled

    assert loop.run_until_complete(story()) == list(range(50))


def test_a_set_of_tasks_has_their_order(loop: SimulatedLoop) -> None:
    async def story() -> list[int]:
        tasks = {loop.create_task(asyncio.sleep(0)) for _ in range(20)}
        await asyncio.wait(tasks)
        return [hash(task) for task in tasks if isinstance(task, SimulatedTask)]

    numbers = loop.run_until_complete(story())

    assert len(numbers) == 20
    assert numbers == sorted(numbers)


def test_threads_and_sockets_are_refused(loop: SimulatedLoop) -> None:
    async def thread() -> None:
        await asyncio.to_thread(list)  # to see it refused

    async def connection() -> None:
        with socket.socket() as real:
            real.setblocking(False)
            await loop.sock_connect(real, ("127.0.0.1", 1))

    with pytest.raises(RuntimeError, match="no threads"):
        loop.run_until_complete(thread())
    with pytest.raises(NotImplementedError):
        loop.run_until_complete(connection())
