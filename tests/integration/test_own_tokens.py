"""Nodes that show tokens to each other, which are exchanged while they run."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import AsyncClient, Receipt
from dittomq.message import CopyState
from dittomq.security.tokens import new_token
from dittomq.testing import LocalCluster
from tests.support.real_group import shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")  # a node reads its token again after 30 s

RULES = """
[[allow]]
who = ["token:boss"]
roles = ["produce", "consume", "admin"]
topics = ["*"]
groups = ["*"]

[[allow]]
who = ["token:node-*"]
roles = ["replicate"]
"""


class TokenedGroup:
    """A master and a slave that know each other by tokens, and whoever commands both."""

    def __init__(self, folder: Path) -> None:
        self.own = folder / "node.token"
        self._tokens = folder / "tokens"
        (folder / "access.toml").write_text(RULES)
        self._boss, self._line = new_token("boss", random.Random("boss"))
        self.exchange("node-1")
        settings = {
            "access.file": str(folder / "access.toml"),
            "access.tokens_file": str(self._tokens),
            "access.own_token_file": str(self.own),
        }
        self.cluster = LocalCluster(folder / "cluster", shape(1, master=settings, slave=settings))

    def exchange(self, name: str) -> None:
        """Give all nodes another token; no other one of a node is valid."""
        token, line = new_token(name, random.Random(name))
        self._tokens.write_text(f"{self._line}\n{line}\n")
        self.own.write_text(token)

    def is_on_both(self) -> bool:
        """Whether a message that is published now is flushed on both nodes."""
        return [copy.state for copy in asyncio.run(self._published()).copies] == [CopyState.FLUSHED] * 2

    async def _published(self) -> Receipt:
        async with AsyncClient(self.cluster.nameserver, token=self._boss) as mq:
            await mq.admin.create_topic("orders", 1)
            async with mq.producer(on_weak="return") as orders:
                return await orders.publish("orders", b"paid")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[TokenedGroup]:
    made = TokenedGroup(tmp_path)
    made.cluster.start()
    try:
        yield made
    finally:
        made.cluster.stop(grace_s=0.0)


def test_a_slave_shows_its_token_to_the_master_and_the_next_one_without_a_restart(group: TokenedGroup) -> None:
    eventually(group.is_on_both, "the slave follows with its token")
    pids = [group.cluster.pid(name) for name in ("a/0", "a/1")]

    group.exchange("stranger")
    eventually(lambda: not group.is_on_both(), "no rule lets the slave follow")

    group.exchange("node-2")
    eventually(group.is_on_both, "it follows with the next token")
    assert [group.cluster.pid(name) for name in ("a/0", "a/1")] == pids
