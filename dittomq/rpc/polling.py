"""How gRPC waits for the network in this process: chosen before gRPC is loaded, which is when it looks.

Since 1.80 it has threads that wait for the sockets, others that handle what came, and one that hands it on. Each of these three
wakes the next one for every message. The way it had before lets the handing thread wait for the sockets itself: an echo over
loopback takes 0.15 instead of 0.25 ms, with 4 instead of 7 waits of a thread (docs/performance.md).
"""

from collections.abc import MutableMapping
from typing import Final

_VARIABLE: Final = "GRPC_EXPERIMENTS"
_FEWER_THREADS: Final = "-event_engine_client,-event_engine_listener"


def wait_with_fewer_threads(environment: MutableMapping[str, str]) -> None:
    """Choose the older way for the process with this environment and those that it starts, unless it chooses already."""
    environment.setdefault(_VARIABLE, _FEWER_THREADS)
