"""What a store does before anybody needs it, as long as that leaves room for what is needed now."""

from collections.abc import Callable

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.locks import StoreLocks
from dittomq.commitlog.options import StoreOptions

_STEP_BYTES = 1024 * 1024


class Ahead:
    """A store's work ahead of its end."""

    def __init__(self, storage: Storage, options: StoreOptions, gate: StoreLocks, maker: SegmentMaker, *, log: Callable[[], Log]) -> None:
        """`log` gives the log as it is now: a cut replaces it."""
        self._storage = storage
        self._options = options
        self._gate = gate
        self._maker = maker
        self._log = log

    @property
    def wants_segment(self) -> bool:
        """Whether no next segment is prepared."""
        return self._maker.is_wanted

    def prepare_segment(self) -> bool:
        """Make the next segment, beside everything else; False when there is one already, or no room. Raises StorageFailure."""
        with self._gate.guard("prepare_segment"):
            return self._has_room() and self._maker.prepare()

    def give_room(self) -> None:
        """Remove the next segment, if it is prepared: it is made again when there is room for it. Raises StorageFailure."""
        with self._gate.guard("give_room"):
            self._maker.discard()

    def zero(self, max_bytes: int = _STEP_BYTES) -> bool:
        """Write zeros behind the log's end, so that later syncs are quick; False when enough is done. For idle moments."""
        with self._gate.writing("zero_ahead"):
            return self._has_room() and self._log().zero_ahead(self._options.zero_window_bytes, max_bytes)

    def _has_room(self) -> bool:
        return self._storage.free_bytes() > self._options.min_free_bytes + self._options.zero_window_bytes
