"""Messages by id, by key and by time, from masters and slaves."""

import asyncio
from datetime import UTC, datetime

import pytest

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client import AsyncClient, Receipt
from dittomq.errors import InvalidField, MessageNotFound, QueueNotFound, TopicNotFound, VersionConflict
from dittomq.rpc.channel import call
from dittomq.tokens import decode_token, encode_token
from tests.simulation.group import Group, play
from tests.support.virtual_time import played_by


async def create(mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None


async def publish(mq: AsyncClient, *keys: str) -> list[Receipt]:
    async with mq.producer() as producer:
        return [await producer.publish("orders", f"{at}", queue=0, keys=[key]) for at, key in enumerate(keys)]


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


@played_by(play)
async def test_message_is_found_by_its_token_on_masters_and_slaves(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    receipts = await publish(mq, "a", "b")
    await asyncio.sleep(2)

    found = await mq.messages.get(receipts[1].token)
    await group.kill("a0")
    by_slave = await mq.messages.get(receipts[1].token)

    assert (found.broker, found.message.body, found.message.keys) == ("a", b"1", ("b",))
    assert by_slave == found


@played_by(play)
async def test_message_is_found_by_rocketmqs_id_of_the_host_that_stored_it(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    [receipt] = await publish(mq, "a")
    page = await mq.reader("orders", 0, broker="a").pull(0)
    host = await stored_by(group, receipt.physical_offset)

    found = await mq.messages.get(f"{host}{receipt.physical_offset:016X}")

    assert found.message == page.messages[0]
    with pytest.raises(MessageNotFound):
        await mq.messages.get(f"0A0B0C0D{host[8:]}{receipt.physical_offset:016X}")


async def stored_by(group: Group, position: int) -> str:
    data = next(inode for path, inode in group.node("a0").disk.names.files.items() if path.startswith("commitlog/"))
    return data.read(8, position + 64).hex().upper()


@pytest.mark.parametrize("text", ["", "x", "1.2", "1.200.a", "g" * 32, "F" * 32, "1.100-200.a", "1.100-50.b"])
@played_by(play)
async def test_what_is_no_id_of_this_cluster_is_refused(group: Group, mq: AsyncClient, /, text: str) -> None:
    with pytest.raises(InvalidField):
        await mq.messages.get(text)


@played_by(play)
async def test_places_where_no_message_begins_hold_none(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    [_, receipt] = await publish(mq, "a", "b")
    token = decode_token(receipt.token)
    for moved in (-1, 1, 100, 1 << 40):
        other = encode_token(token.broker, token.epoch, type(token.end)(token.end + moved), token.incarnation, size=token.size)
        with pytest.raises(MessageNotFound):
            await mq.messages.get(other)
    with pytest.raises(MessageNotFound):
        await mq.messages.get(encode_token(token.broker, type(token.epoch)(token.epoch + 1), token.end, size=token.size))
    [status] = [await mq.admin.ha_status("a/0")]
    assert status.writable


@played_by(play)
async def test_messages_with_a_key_are_found_newest_first_in_pages(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    receipts = await publish(mq, *(["k", "other"] * 40))
    await asyncio.sleep(2)

    found = await mq.messages.find("orders", "k", limit=100)
    few = await mq.messages.find("orders", "k", limit=3)
    ranged = await mq.messages.find("orders", "k", since=at(receipts[10].store_ms), until=at(receipts[20].store_ms))
    await group.kill("a0")
    by_slave = await mq.messages.find("orders", "k", limit=100)

    assert [each.message.body for each in found] == [b"%d" % each for each in range(78, -1, -2)]
    assert few == found[:3]
    assert by_slave == found
    expected = [each for each in found if receipts[10].store_ms <= each.message.store_ms < receipts[20].store_ms]
    assert ranged == expected
    assert await mq.messages.find("orders", "nobody") == []
    with pytest.raises(TopicNotFound):
        await mq.messages.find("nowhere", "k")


@played_by(play)
async def test_page_token_of_another_search_or_time_is_refused(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await publish(mq, *(["k"] * 5))
    await asyncio.sleep(1)

    async def page(key: str, token: str) -> pb.FindMessagesResponse:
        [node] = [node for node in await mq.admin.list_brokers() if node.name == "a/0"]
        stub = mq._around.channels.stub(MessagingServiceStub, node.address)  # noqa: SLF001  # no client asks for one page
        request = pb.FindMessagesRequest(topic="orders", key=key, page_size=2, page_token=token)
        response: pb.FindMessagesResponse = await call(stub.FindMessages, request, who="a/0", deadline_s=3)
        return response

    token = (await page("k", "")).next_page_token
    assert [message.body for message in (await page("k", token)).messages] == [b"2", b"1"]
    for key, wrong in (("other", token), ("k", "x"), ("k", "1.2.00000000"), (" ", ""), ("", "")):
        with pytest.raises(InvalidField):
            await page(key, wrong)
    generation, rest = token.split(".", 1)
    with pytest.raises(VersionConflict):
        await page("k", f"{int(generation) + 1}.{rest}")


@played_by(play)
async def test_offset_of_a_time_is_the_first_message_stored_at_or_after_it(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    receipts: list[Receipt] = []
    for number in range(9):
        receipts += await publish(mq, f"{number}")
        await asyncio.sleep(1)
    reader = mq.reader("orders", 0, broker="a")

    assert await reader.offset_at(at(0)) == 0
    for offset, receipt in enumerate(receipts):
        assert await reader.offset_at(at(receipt.store_ms)) == offset
        assert await reader.offset_at(at(receipt.store_ms + 1)) == offset + 1
    assert await mq.reader("orders", 0, node="a/1").offset_at(at(receipts[4].store_ms)) == 4
    assert await reader.offset_at(at(4_000_000_000_000)) == 9
    with pytest.raises(QueueNotFound):
        await mq.reader("orders", 7, broker="a").offset_at(at(0))
    with pytest.raises(InvalidField):
        await reader.offset_at(datetime(2030, 1, 1))  # noqa: DTZ001
