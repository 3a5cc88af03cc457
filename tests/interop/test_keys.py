"""Messages of either hand are found by their keys in a store that went to and fro."""

from pathlib import Path

import pytest

from tests.interop.peer import Peer
from tests.interop.release import release
from tests.interop.rocketmq_visits import VISITS, pay
from tests.interop.written_store import Written, copy, open_store, read_all
from tests.support.real_group import SEGMENT_BYTES, TOPIC

pytestmark = pytest.mark.tier("nightly")


@pytest.mark.parametrize("visit", ["5.3.3-killed", "4.9.7"])
def test_rocketmq_finds_what_both_wrote_after_we_had_the_store_again(written: Written, tmp_path: Path, visit: str) -> None:
    visited = pay(VISITS[visit], copy(written.clean.folder, tmp_path / "store"))
    store = open_store(visited.folder)
    read_all(store)
    store.close(clean=True)

    with Peer(release(visited.visit.version), visited.folder, SEGMENT_BYTES) as peer:
        found = {key: sorted(line["position"] for line in peer.find(TOPIC, key)) for key in ("big", "one", "key-42")}

    both = [*written.clean.messages, *visited.messages]
    assert found == {key: [seen.position for seen in both if seen.topic == TOPIC and key in seen.keys.split(" ")] for key in found}
