"""Epochs that slaves have noted for other nodes, and that this master was not told of when it opened its own: it asks those."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NoReturn

import structlog

from dittomq.replication.events import MAX_PROMISES
from dittomq.replication.standings import Standing
from dittomq.routes import Opening

log = structlog.get_logger()

_ASK_EVERY_S: Final = 2.0


class Promises:
    """Those of one master. `settled`: their openers lead no more, and hold nothing that this log does not."""

    def __init__(self, node: str) -> None:
        self.settled: set[Opening] = set()
        self._node = node
        self._broker = node.rpartition("/")[0]
        self._asked: dict[Opening, None] = {}
        self._bell = asyncio.Event()

    @property
    def unknown(self) -> str:
        """What this log may lack, in words; empty while nothing is asked."""
        of_each = (f"what {self._broker}/{each.opener_id} confirmed in epoch {each.epoch}" for each in self._asked)
        return " and ".join(of_each) + ", if anything: it does not answer as a slave of this log with that disk" if self._asked else ""

    def ask(self, promises: Iterable[Opening]) -> None:
        """Find out about these. Of very many, which only a stranger names, the newest are left for later."""
        for promise in promises:
            if promise not in self._asked and len(self._asked) < MAX_PROMISES:
                log.warning("asks_opener", node=self._node, epoch=promise.epoch, opener=promise.opener_id)
                self._asked[promise] = None
        self._bell.set()

    async def settle(self, others: Callable[[], Awaitable[list[Standing]]], knows_all_of: Callable[[Standing], bool]) -> NoReturn:
        """Ask the `others` where they stand, again and again while something is open; until cancelled."""
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._asked:
                known = [standing for standing in await others() if knows_all_of(standing)]
                for promise in [each for each in self._asked if any(_has_its_disk(standing, each) for standing in known)]:
                    del self._asked[promise]
                    self.settled.add(promise)
                    log.info("promise_settled", node=self._node, epoch=promise.epoch, opener=promise.opener_id)
                await asyncio.sleep(_ASK_EVERY_S)


def _has_its_disk(standing: Standing, promise: Opening) -> bool:
    """Whether that is the opener, with the disk that it had then: one that was filled later, be it by this master, shows nothing of it."""
    return standing.node_id == promise.opener_id and standing.filled_in < promise.epoch
