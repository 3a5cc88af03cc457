"""A store's settings."""

from dataclasses import dataclass

from dittomq.commitlog.queues.key_format import ROCKETMQ_KEY_SIZES, KeySizes
from dittomq.commitlog.records.format import Host

MIN_SEGMENT_BYTES = 4_096
_LOOPBACK = Host(bytes((127, 0, 0, 1)), 10911)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Bytes, except `queue_file_units` and `key_sizes`. `segment_bytes` is fixed for the life of a store.

    With other sizes of queue files or of the key index these are built again. The defaults are RocketMQ's.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    queue_file_units: int = 300_000
    key_sizes: KeySizes = ROCKETMQ_KEY_SIZES
    # Appends are refused when they would leave less than this on the disk.
    min_free_bytes: int = 256 * 1024 * 1024
    open_files: int = 512
    # How far zeros are written ahead of the end.
    zero_window_bytes: int = 64 * 1024 * 1024
    # Segments that are missing or short become damage that other copies give back: for followers. Otherwise they are refused.
    refills: bool = False
    # Bytes may be acknowledged before they are synced: a power loss makes the replica a stranger to its group then.
    acks_unsynced: bool = False
    # Stands in every record as the host that bore and stored it: one host is how our own are told from RocketMQ's.
    host: Host = _LOOPBACK
    # "broker/id" and where the store lies, for sentences.
    node: str = "this node"
    path: str = "data_dir"

    def __post_init__(self) -> None:
        assert self.segment_bytes >= MIN_SEGMENT_BYTES, f"a segment has at least {MIN_SEGMENT_BYTES} bytes"
        assert self.queue_file_units > 0, "a queue's file has at least one unit"
        assert self.key_sizes.slots > 0, "the key index has at least one slot"
        assert self.key_sizes.entries > 1, "entry 0 of a file is never used"
