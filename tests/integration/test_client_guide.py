"""Every block of docs/client.md runs, one after the other, on a real cluster."""

import ast
import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import Client
from dittomq.testing import LocalCluster, Shape
from tests.support.documents import blocks

_GUIDE = "docs/client.md"


@pytest.fixture
def nameserver(tmp_path: Path) -> Iterator[str]:
    """The cluster that the guide speaks of."""
    with LocalCluster(tmp_path / "cluster", Shape(slaves=2, usual_ports=False)) as cluster:
        with Client(cluster.nameserver) as mq:
            assert all(result.error is None for result in mq.admin.create_topic("orders", queues=8))
        yield cluster.nameserver


def test_every_block_of_the_guide_runs(nameserver: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}

    for number, block in enumerate(blocks(_GUIDE, "python"), start=1):
        _run(block.replace("localhost:9876", nameserver), f"{_GUIDE}, block {number}", names)

    said = capsys.readouterr().out
    assert "5000 PUT_OK" in said
    assert "[b'one']" in said
    assert said.splitlines()[-2:] == ["PUT_OK", "SLAVE_NOT_AVAILABLE"]
    assert names["count"] == 5_002


def _run(code: str, name: str, names: dict[str, object]) -> None:
    """Run a block, which may await as a coroutine does."""
    compiled = compile(code, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def await_it() -> None:
        coroutine = eval(compiled, names)
        assert inspect.iscoroutine(coroutine)
        await coroutine

    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(await_it())
    else:
        exec(compiled, names)
