"""How much of what a slave says waits in its master's memory."""

import asyncio

from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import LeafDigests, SlaveAck
from services.master.mailbox import MAX_ACKS, Mailbox, SlaveMessage

ZERO = PhysicalOffset(0)
LEAVES = LeafDigests(ZERO, PhysicalOffset(16), (b"",) * 16)


def ack(number: int) -> SlaveAck:
    return SlaveAck(Epoch(1), PhysicalOffset(number), ZERO, ZERO)


async def until_nothing_moves() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def listen(inbox: Mailbox, said: list[SlaveMessage]) -> None:
    for event in said:
        await inbox.put(event)


def most_waiting(said: list[SlaveMessage]) -> tuple[int, int]:
    """The most that waited, of all and of large ones, while the session took one after the other; all came, in their order."""

    async def run() -> tuple[int, int]:
        inbox, taken, most, large = Mailbox(), list[SlaveMessage](), 0, 0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listen(inbox, said))
            await until_nothing_moves()
            while len(inbox):
                most = max(most, len(inbox))
                large = max(large, sum(not isinstance(each, SlaveAck) for each in inbox._events))  # noqa: SLF001  # what waits
                taken.append(inbox.take())
                await until_nothing_moves()
        assert taken == said
        return most, large

    return asyncio.run(run())


def test_so_many_acks_wait_and_no_more() -> None:
    assert most_waiting([ack(number) for number in range(3 * MAX_ACKS)]) == (MAX_ACKS, 0)


def test_of_what_may_be_as_large_as_a_frame_one_waits_at_a_time() -> None:
    assert most_waiting([LEAVES] * 20) == (1, 1)
    assert most_waiting([ack(1), LEAVES, *[ack(number) for number in range(10)], LEAVES, LEAVES])[1] == 1
