"""Many messages of one call: what came of each is told at its own index, however they were put together."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from dittomq.client.batches import PendingSend as Handed
from dittomq.client.batches import SendQueue, make_batch
from dittomq.client.bulk import BulkPublish
from dittomq.client.partitioner import Partitioner, SendTarget
from dittomq.client.send_results import NotStoredResult, Outcome
from dittomq.errors import InvalidField, NotStored, QueueNotFound, TopicNotFound
from dittomq.message import MAX_BATCH_MESSAGES, MAX_BODY_BYTES, Message
from dittomq.routes import QueueRange, Route
from tests.support.virtual_time import under

SEED = 7
TOPICS = ("orders", "bills")


class Post:
    """Takes batches, stores nothing, and says so of each message with its body in the place of its topic."""

    def __init__(self) -> None:
        self.chooser = Partitioner(lambda: 0.0)
        self.sends: list[Handed] = []

    async def route(self, topic: str) -> Route:
        if topic not in TOPICS:
            raise TopicNotFound(topic, "cluster c", "")
        return Route(topic, "c", (QueueRange("a", 4, 4, 6), QueueRange("b", 2, 2, 6)), ())

    async def submit(
        self, target: SendTarget, messages: Sequence[Message], queues: Sequence[int], size: int, *, plain: bool
    ) -> asyncio.Future[Outcome]:
        self.sends.append(Handed(messages, queues, size, target.bound, plain, 0.0, 1.0))
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.set_result(NotStoredResult(tuple(_number(message) for message in messages), TopicNotFound("", "", "")))
        return future

    async def await_outcome(self, future: asyncio.Future[Outcome]) -> Outcome:
        return await future

    def give_up(self, piece: asyncio.Future[Outcome] | Outcome) -> None:
        raise AssertionError("all is heard")


def _number(message: Message) -> str:
    return message.body[:8].decode()


def _some(chance: random.Random, count: int) -> list[Message]:
    messages: list[Message] = []
    while len(messages) < count:
        topic = chance.choice([*TOPICS, "nowhere"]) if chance.random() < 0.2 else TOPICS[0]
        odd = {
            0: {"queue": chance.choice([0, 3, 3, 77])},
            1: {"order_key": "k"},
            2: {"tag": "paid"},
            3: {"keys": ("k",)},
            4: {"properties": {"p": "v"}},
            5: {"flag": 1},
            6: {"tag": "with\x01separator"},
        }
        more = odd.get(chance.randrange(7) if chance.random() < 0.1 else -1, {})
        for _ in range(min(chance.choice([1, 2, 30, 900]), count - len(messages))):
            body = b"%08d" % len(messages) + bytes(chance.choice([0, 0, 100, 9_000]))
            messages.append(Message(topic, body, **more))  # type: ignore[arg-type]
    return messages


@pytest.mark.parametrize("asked_one_by_one", [False, True])
def test_each_outcome_is_told_at_the_index_of_its_message(*, asked_one_by_one: bool) -> None:
    chance = random.Random(SEED)

    async def round_trip(number: int) -> None:
        messages, post = _some(chance, 3_000), Post()
        bulk = BulkPublish(post, weak_fails=True, stop_at_failure=False)
        for part in [[message] for message in messages] if asked_one_by_one else [messages]:
            await bulk.add(part)
        outcomes = await bulk.finish()

        seed = f"round {number} of seed {SEED}"
        assert len(outcomes) == len(messages), seed
        for index, message in enumerate(messages):
            outcome = outcomes[index]
            assert isinstance(outcome, NotStored), seed
            refused = message.topic == "nowhere" or message.queue == 77 or "\x01" in message.tag
            assert isinstance(outcome.cause, InvalidField | QueueNotFound | TopicNotFound), seed
            assert (outcome.topic, outcome.index) == (message.topic if refused else _number(message), index), seed
        with pytest.raises(NotStored) as first:
            outcomes.raise_first_failure()
        assert first.value.index == 0, seed
        with pytest.raises(IndexError):
            outcomes[len(messages)]
        assert str(outcomes[-1]) == str(outcomes[len(messages) - 1]), seed
        for send in post.sends:
            _check(send, seed)

    for number in range(5):
        asyncio.run(round_trip(number))


def _check(send: Handed, seed: str) -> None:
    assert 1 <= len(send.messages) == len(send.queues) <= MAX_BATCH_MESSAGES, seed
    if not send.bound:
        assert len({(message.topic, queue) for message, queue in zip(send.messages, send.queues, strict=True)}) == 1, seed
    nothing_more = all(message == Message(message.topic, message.body) for message in send.messages)
    assert send.plain == (nothing_more and not send.bound), seed


@under(asyncio.run)
async def test_a_body_that_is_too_large_or_no_bytes_is_refused_behind_those_that_are_not() -> None:
    bulk = BulkPublish(Post(), weak_fails=True, stop_at_failure=False)
    odd = [bytes(MAX_BODY_BYTES + 1), "text"]
    await bulk.add([Message("orders", b"%08d" % 0), *(Message("orders", body) for body in odd), Message("orders", b"%08d" % 3)])  # type: ignore[arg-type]
    outcomes = await bulk.finish()

    assert [str(outcome.topic) for outcome in outcomes if isinstance(outcome, NotStored)] == [
        "00000000",
        "orders",
        "orders",
        "00000003",
    ]


def test_a_batch_keeps_the_order_of_each_queue_and_its_runs_say_what_it_holds() -> None:
    chance = random.Random(SEED)
    for number in range(300):
        waiting = SendQueue()
        sends = [_batch(chance, at) for at in range(chance.randrange(1, 8))]
        for send in sends:
            waiting.add(send)
        in_order = sorted(sends, key=lambda send: send.deadline)

        batch = make_batch(1, "p", 0, waiting.take_batch())

        messages, queues = batch.content()
        seed = f"frame {number} of seed {SEED}"
        for queue in range(3):
            sent = [message for message, its in zip(messages, queues, strict=True) if its == queue]
            offered = [message for send in in_order for message, its in zip(send.messages, send.queues, strict=True) if its == queue]
            assert sent == offered, seed
        runs = batch.plain_runs()
        assert (runs is not None) == all(send.plain for send in sends), seed
        assert runs is None or [body for run in runs for body in run.bodies] == [message.body for message in messages], seed
        assert runs is None or [run.queue for run in runs for _ in run.bodies] == queues, seed
        for send, places in batch.parts():
            assert [messages[place] for place in places] == list(send.messages), seed
        assert batch.deadline == in_order[0].deadline, seed

        waiting.put_back(batch.sends)

        again = make_batch(2, "p", 0, waiting.take_batch())
        assert again.content() == (messages, queues), seed


def _batch(chance: random.Random, at: int) -> Handed:
    count, bound = chance.randrange(1, 5), chance.random() < 0.1
    queue = chance.randrange(3)
    messages = [Message("orders", b"%d.%d" % (at, place)) for place in range(count)]
    queues = [chance.randrange(3) if bound else queue for _ in range(count)]
    return Handed(messages, queues, count, bound, not bound and chance.random() < 0.8, 0.0, float(chance.randrange(3)))
