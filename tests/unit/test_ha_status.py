"""What an answer about replication says of an error."""

import pytest

from dittomq.errors import DittoError, FencedEpoch, NotReady, Unavailable
from dittomq.ha_status import StreamEndReason, ended_by


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FencedEpoch("a/0", "epoch 4 is newer"), StreamEndReason.NOT_READY),
        (Unavailable("a/0", "connection refused"), StreamEndReason.UNREACHABLE),
        (NotReady("a/0", "it recovers"), StreamEndReason.NOT_READY),
    ],
)
def test_the_error_that_ended_a_stream_has_its_own_kind(error: DittoError, kind: StreamEndReason) -> None:
    assert ended_by(error) is kind
