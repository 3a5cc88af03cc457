"""What every answer's headers carry, on both sides."""

from typing import NamedTuple

NODE_HEADER = "dittomq-node"
EPOCH_HEADER = "dittomq-epoch"
REQUEST_ID_HEADER = "dittomq-request-id"
LOG_END_HEADER = "dittomq-log-end"


class Answerer(NamedTuple):
    """Who answers, at the time of the call. `log_end`: nothing that the call brings will lie below it; None: it takes no messages."""

    node: str
    epoch: int
    log_end: int | None = None
