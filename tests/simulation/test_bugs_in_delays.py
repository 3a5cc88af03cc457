"""The story of all that waits, and that it finds each deliberate bug of it."""

import asyncio
from collections.abc import Callable

import pytest

from dittomq.client import AsyncClient, CancelOutcome, Message
from dittomq.message import StoredMessage
from tests.simulation.bugs.delays import BUGS
from tests.simulation.bugs.patches import Patches
from tests.simulation.group import Group, play


async def story(group: Group, mq: AsyncClient) -> None:
    """Messages wait, some are cancelled, transactions end, masters die: each comes once and not early, or never."""
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    async with mq.producer() as producer:
        receipts = {
            name: await producer.publish("orders", name, delay_s=delay_s)
            for name, delay_s in [("early", 1), ("level", 5), ("timer", 7.3), ("gone", 10), ("gone too", 12.7), ("late", 10)]
        }
        due = {
            name: receipt.store_ms + 1_000 * delay_s
            for (name, receipt), delay_s in zip(receipts.items(), (1, 5, 7.3, 0, 0, 10), strict=True)
        }
        async with await producer.transaction(Message("orders", b"committed"), "billing") as transaction:
            pass
        assert transaction.receipt is not None
        await mq.transactions.end(transaction.receipt.token, commit=True)
        await asyncio.sleep(1.5)
        assert [await mq.messages.cancel(receipts[name].token) for name in ("gone", "gone too")] == [CancelOutcome.CANCELLED] * 2
        await producer.publish("orders", "again", delay_s=1)
        await group.kill("a0")
        await group.fail_over("a/1")
        await mq.transactions.end(transaction.receipt.token, commit=True)
    await asyncio.sleep(14)

    found: list[StoredMessage] = list((await mq.reader("orders", 0, node="a/1", max_messages=100).pull(0)).messages)
    assert sorted(message.body.decode() for message in found) == ["again", "committed", "early", "late", "level", "timer"]
    for message in found:
        if (name := message.body.decode()) in due:
            assert message.store_ms >= due[name] - 100, name


def test_each_message_that_waits_comes_once_and_not_early_or_never() -> None:
    play(story)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_story_of_what_waits_finds_each_bug(bug: Callable[[Patches], None]) -> None:
    patches = Patches()
    try:
        bug(patches)
        with pytest.raises(AssertionError):
            play(story)
    finally:
        patches.undo()
