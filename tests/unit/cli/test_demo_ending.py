"""Signals end the demo wherever it just is."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from dittomq.cli.demo.ending import ended_at_last
from dittomq.testing import LocalCluster


class Finalized:
    """Is signalled in its finalizer, whose exceptions go nowhere."""

    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self._number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_demo_also_while_a_finalizer_runs(tmp_path: Path, number: signal.Signals) -> None:
    async def signalled() -> None:
        Finalized(number)
        async with asyncio.timeout(20):
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt), ended_at_last(LocalCluster(tmp_path)):
        asyncio.run(signalled())
