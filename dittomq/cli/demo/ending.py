"""The end of the demo's cluster, however the demo ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from dittomq.testing import LocalCluster


@contextmanager
def ended_at_last(cluster: LocalCluster) -> Iterator[None]:
    """End every process of the cluster when the block ends, however it ends; SIGTERM and SIGHUP end the block as SIGINT does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # Not raised here: asyncio answers SIGINT by cancelling its main task, while an exception that comes up in the finalizer which
        # was just running is printed and gone.
        signal.raise_signal(signal.SIGINT)

    # SIGINT too: where it is ignored, as in a script's background, or somebody else's, asyncio leaves it alone, and the others were lost.
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: interrupt, signal.SIGHUP: interrupt}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number in handlers:
            signal.signal(number, signal.SIG_IGN)
        cluster.stop(grace_s=5.0)
        for number, handler in before.items():
            signal.signal(number, handler)
