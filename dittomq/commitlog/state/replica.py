"""What a replica must not forget: `dittomq/replica` holds its id, and what it adopted and promised.

Two slots of 4,096 bytes with the same content, written one after the other in place, so a change never needs room. Each has a growing
number and a checksum: if a crash tears one of them, or the disk does not give it, the other one tells all.
"""

import contextlib
import json
import random
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.state_file import CorruptStateFile, Number
from dittomq.commitlog.disk.storage import Storage, replace_file, speaks_of_bytes
from dittomq.commitlog.locks import StoreLocks
from dittomq.doors.chance import hex_id
from dittomq.errors import InvalidField
from dittomq.group_record import ReplicaId
from dittomq.offsets import NO_EPOCH, Epoch

_PATH = "dittomq/replica"
_KIND = b"REPL"
_SLOT_BYTES = 4_096
_MAX_BIRTH_BYTES = 256


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The file. `birth` is that of the group record it belongs to, "" for none; `revision` is the greatest that it knows of that record.

    `adopted` is the epoch of the last master whose log it matches, or that it opened itself. `promised` >= `adopted`.
    """

    number: Number
    uuid: str
    incarnation: str
    birth: str = ""
    adopted: Number = 0
    promised: Number = 0
    revision: Number = 0

    @property
    def id(self) -> ReplicaId:
        """Its id."""
        return ReplicaId(self.uuid, self.incarnation)


def new_state(chance: random.Random, *, uuid: str = "", known: Epoch = NO_EPOCH, adopted: Epoch = NO_EPOCH) -> ReplicaState:
    """A replica with a new incarnation, and with a new uuid unless one is given; it has promised what is `known`."""
    return ReplicaState(1, uuid or hex_id(chance), hex_id(chance), adopted=adopted, promised=max(known, adopted))


def load(storage: Storage) -> ReplicaState | None:
    """What it says; None when there is no such file. Raises CorruptStateFile when no slot is whole."""
    slots = _slots(storage)
    return None if slots is None else _newest(slots)


def create(storage: Storage, state: ReplicaState) -> None:
    """Durably make the file, which takes room, or replace it."""
    replace_file(storage, _PATH, _slot(state) * 2)


def save(storage: Storage, state: ReplicaState) -> None:
    """Durably write it into both slots of the file that is there. No two callers at a time."""
    _write(storage, state, (0, 1))


def settle(storage: Storage) -> ReplicaState | None:
    """Load it, after making both slots hold what the newer one says, durably: the next write may tear one of them."""
    slots = _slots(storage)
    if slots is None:
        return None
    newest = _newest(slots)
    _write(storage, newest, tuple(at for at, each in enumerate(slots) if each != newest))
    return newest


class OwnReplica:
    """The state of a store that this process has open. Every change is durable when it returns; any number of threads may ask and change.

    Changes raise StorageFailure, after which the store takes no more.
    """

    def __init__(self, storage: Storage, gate: StoreLocks, chance: random.Random) -> None:
        self._storage = storage
        self._gate = gate
        self._chance = chance
        self._lock = threading.Lock()
        self._state: ReplicaState | None = None
        self._is_drawn = False

    @property
    def state(self) -> ReplicaState:
        """As it is on the disk."""
        assert self._state is not None, "an open store is a replica"
        return self._state

    def begin(self, state: ReplicaState, *, is_drawn: bool) -> None:
        """Go on from what is in the file. `is_drawn`: this start drew its incarnation."""
        self._state, self._is_drawn = state, is_drawn

    def draw_incarnation(self) -> None:
        """Become a stranger: this replica may lack bytes that it acknowledged. Once a start; before the traces of that go."""
        if not self._is_drawn:
            self._change("draw an incarnation", lambda state: replace(state, incarnation=hex_id(self._chance)))
            self._is_drawn = True

    @property
    def is_drawn(self) -> bool:
        """Whether this start drew its incarnation."""
        return self._is_drawn

    def promise(self, epoch: Epoch) -> None:
        """Promise that epoch; a higher promise stays."""
        self._change("promise", lambda state: replace(state, promised=max(state.promised, epoch)))

    def adopt(self, epoch: Epoch) -> None:
        """Adopt that epoch, which promises it too; a higher one stays."""
        self._change("adopt_epoch", lambda state: replace(state, adopted=max(state.adopted, epoch), promised=max(state.promised, epoch)))

    def take_birth(self, birth: str) -> None:
        """Belong to the group record of that birth, "" for none. Of another one no revision is known."""
        if len(birth.encode()) > _MAX_BIRTH_BYTES:
            raise InvalidField("birth", f"it has more than {_MAX_BIRTH_BYTES} bytes")
        self._change("take_birth", lambda state: state if state.birth == birth else replace(state, birth=birth, revision=0))

    def persist_revision(self, revision: int) -> None:
        """Know that revision of the group record; a higher one stays."""
        self._change("persist_revision", lambda state: replace(state, revision=max(state.revision, revision)))

    def _change(self, operation: str, change: Callable[[ReplicaState], ReplicaState]) -> None:
        with self._lock, self._gate.guard(operation):
            before, after = self.state, change(self.state)
            if after != before:
                after = replace(after, number=before.number + 1)
                save(self._storage, after)
                self._state = after


def _slots(storage: Storage) -> list[ReplicaState | None] | None:
    """What each slot says, None for one that is not whole; None when there is no such file."""
    if not storage.exists(_PATH):
        return None
    return [_read(storage, at) for at in (0, 1)]


def _read(storage: Storage, at: int) -> ReplicaState | None:
    with contextlib.closing(storage.open(_PATH, readonly=True)) as file:
        try:
            data = file.pread(_SLOT_BYTES, at * _SLOT_BYTES)
            return state_file.parse(state_file.unseal(_KIND, data, _PATH), ReplicaState, _PATH)
        except CorruptStateFile:
            return None
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            return None


def _newest(slots: list[ReplicaState | None]) -> ReplicaState:
    whole = [each for each in slots if each is not None]
    if not whole:
        raise CorruptStateFile(f"{_PATH} is damaged: neither of its two slots is whole")
    return max(whole, key=lambda each: each.number)


def _write(storage: Storage, state: ReplicaState, slots: tuple[int, ...]) -> None:
    with contextlib.closing(storage.open(_PATH)) as file:
        for at in slots:
            file.pwrite(_slot(state), at * _SLOT_BYTES)
            file.fdatasync()


def _slot(state: ReplicaState) -> bytes:
    sealed = state_file.seal(_KIND, json.dumps(asdict(state), sort_keys=True).encode())
    assert len(sealed) <= _SLOT_BYTES, "an id, a birth and four numbers are small"
    return sealed.ljust(_SLOT_BYTES, b"\0")
