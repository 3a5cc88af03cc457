"""Every record that RocketMQ wrote, read into its fields and written again from them."""

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import items, open_on_disk
from tests.support.record_round_trip import not_written_again
from tests.vectors.conftest import Vector


def test_what_is_written_from_a_records_fields_is_what_rocketmq_wrote_byte_for_byte(vector: Vector) -> None:
    whole = [item for item in items(open_on_disk(OsStorage(vector.folder), vector.name)) if item.record is not None and not item.problem]

    assert len(whole) > 200
    assert not_written_again(vector.folder, whole) == []
