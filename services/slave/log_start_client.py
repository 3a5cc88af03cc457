"""Where the log of the master that a slave follows begins now: retention goes by that where damage hides numbers."""

import contextlib
from collections.abc import Awaitable, Callable

from dittomq.broker.range_client import RangeClient
from dittomq.copies import LogStart
from dittomq.errors import DittoError
from dittomq.rpc.channel import Channels
from services.slave.config import SlaveConfig
from services.slave.replica_fetcher import ReplicaFetcher


def master_log_start(fetcher: ReplicaFetcher, channels: Channels, config: SlaveConfig) -> Callable[[], Awaitable[LogStart | None]]:
    """Asks for it; None while the store in use follows no master, or that does not tell."""

    async def fetch() -> LogStart | None:
        if fetcher.master.reported_end is None or fetcher.resync.replica is not None:
            return None
        with contextlib.suppress(DittoError):
            return await RangeClient(channels, fetcher.dials, config).log_start()
        return None

    return fetch
