"""What a master keeps about its slaves and about degraded ranges."""

from pathlib import Path

import pytest

from dittomq.commitlog.disk.storage import OsStorage, replace_file
from dittomq.errors import UnreadableStore
from dittomq.offsets import PhysicalOffset
from services.master.degraded import PATH, DegradedRanges, load_degraded
from services.master.slaves import EndHistory
from services.master.turns import Turns


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def test_lag_in_time_is_the_age_of_the_end_that_a_copy_holds() -> None:
    history = EndHistory()
    for second in range(10):
        history.mark(at(second * 100), float(second))

    assert history.lag_s(at(900), at(900), 9.0) == 0.0
    assert history.lag_s(at(450), at(900), 9.5) == 5.5
    assert EndHistory().lag_s(at(0), at(900), 9.5) is None


def test_a_degraded_range_survives_a_restart_and_ends_where_the_log_ended(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    ranges = DegradedRanges()
    ranges.begin(at(100), 7)
    ranges.end(at(150))
    ranges.begin(at(200), 9)
    ranges.save(storage)

    loaded = load_degraded(storage, at(260))

    assert not loaded.is_open
    assert loaded.total_bytes(at(300)) == 50 + 60


def test_an_open_range_counts_up_to_what_is_confirmed() -> None:
    ranges = DegradedRanges()
    ranges.begin(at(100), 7)

    assert ranges.is_open
    assert ranges.since_ms == 7
    assert ranges.total_bytes(at(130)) == 30


def test_a_damaged_record_of_ranges_is_refused_by_name(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    replace_file(storage, PATH, b"{")

    with pytest.raises(UnreadableStore, match="degraded ranges is damaged"):
        load_degraded(storage, at(0))


def test_messages_without_a_queue_go_round() -> None:
    turns = Turns()

    assert [turns.take("t", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert turns.take("u", 3) == 0
