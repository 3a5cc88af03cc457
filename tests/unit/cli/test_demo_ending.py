"""Signals end the demo wherever it just is."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from dittomq.cli.demo.ending import ended_at_last
from dittomq.testing import LocalCluster

Handler = Callable[[int, FrameType | None], object] | signal.Handlers


def raises(_number: int, _frame: FrameType | None) -> None:
    """As Spark's driver answers SIGINT once it has started in a process."""
    raise KeyboardInterrupt


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN, raises])
def earlier(request: pytest.FixtureRequest) -> Iterator[Handler]:
    """What answers SIGINT before the demo begins."""
    handler: Handler = request.param
    before = signal.signal(signal.SIGINT, handler)
    yield handler
    signal.signal(signal.SIGINT, before)


class Finalized:
    """Is signalled in its finalizer, whose exceptions go nowhere."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_demo_also_while_a_finalizer_runs(tmp_path: Path, number: signal.Signals, earlier: Handler) -> None:
    async def signalled() -> None:
        Finalized(number)
        async with asyncio.timeout(20):
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt), ended_at_last(LocalCluster(tmp_path)):
        asyncio.run(signalled())

    assert signal.getsignal(signal.SIGINT) is earlier
