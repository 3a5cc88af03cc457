"""Stores with one bug each: the sweep must find every one of them.

A mutant takes the product's own code apart with pytest's monkeypatch; the scripts are those in which it can show.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dittomq.broker import config_files
from dittomq.commitlog import log_start_state, recovery, store_swap, truncation
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.storage import File, Storage, put_in_place
from dittomq.commitlog.queues import index_checkpoint, producer_state, queue_truncation
from dittomq.commitlog.queues.consume_queue import QueueIndex
from dittomq.commitlog.queues.key_index import KeyIndex
from dittomq.commitlog.state import damage_map, identity, recovery_point, replica, shutdown_marker
from dittomq.commitlog.state.damage_map import DamageMap
from dittomq.commitlog.state.replica import OwnReplica
from dittomq.commitlog.store import Store

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True)
class Mutant:
    """`plant` puts the bug in; it shows in the run `found_at`, or, if the store's calls have changed, in one of `scripts`.

    Every `step`-th run of these is tried.
    """

    plant: Callable[[Patch], None]
    scripts: tuple[str, ...]
    found_at: str
    step: int = 7


class Deaf:
    """A door that does not hear one kind of call, so many times."""

    def __init__(self, storage: Storage, call: str, times: int) -> None:
        self._storage = storage
        self._call = call
        self._times = times

    def __getattr__(self, name: str) -> Any:
        if name != self._call or self._times == 0:
            return getattr(self._storage, name)
        self._times -= 1
        return _nothing


def _nothing(*_: object, **__: object) -> None:
    return


def checkpoint_saved_before_the_sync(patch: Patch) -> None:
    def early(store: Store) -> None:
        end, synced = store.end, store.sync
        store.flushed = end
        patch.setattr(store, "sync", _nothing, raising=False)
        real(store)
        patch.setattr(store, "sync", synced, raising=False)
        synced()

    real = Store.checkpoint
    patch.setattr(Store, "checkpoint", early)


def units_not_synced_before_the_checkpoint(patch: Patch) -> None:
    patch.setattr(QueueIndex, "sync", _nothing)


def keys_not_synced_before_the_checkpoint(patch: Patch) -> None:
    patch.setattr(KeyIndex, "sync", KeyIndex.write)


def names_of_segments_not_synced(patch: Patch) -> None:
    patch.setattr(SegmentMaker, "sync_names", _nothing)


def prepared_segment_not_synced(patch: Patch) -> None:
    """Its size is in memory only."""

    def create(maker: SegmentMaker) -> File:
        file = real(maker)
        patch.setattr(file, "fdatasync", _nothing)
        return file

    real = SegmentMaker._create  # noqa: SLF001 - takes the product apart
    patch.setattr(SegmentMaker, "_create", create)


class Hiding:
    """A door that shows no prepared segment to who lists its folder."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def list_folder(self, path: str) -> list[str]:
        return [name for name in self._storage.list_folder(path) if name != "tmp-segment"]


def prepared_segment_used_by_the_next_process(patch: Patch) -> None:
    def recover(store: Store) -> None:
        storage, maker = store._storage, store._maker  # noqa: SLF001 - takes the product apart
        store._storage = Hiding(storage)  # noqa: SLF001
        real(store)
        store._storage = storage  # noqa: SLF001
        if storage.exists("dittomq/tmp-segment"):
            maker._spare = type(maker._spare).READY  # noqa: SLF001

    real = Store._recover  # noqa: SLF001
    patch.setattr(Store, "_recover", recover)


def prepared_segment_emptied_by_the_next_process(patch: Patch) -> None:
    """Whatever has the name is made a new segment."""

    def recover(store: Store) -> None:
        storage = store._storage  # noqa: SLF001 - takes the product apart
        store._storage = Hiding(storage)  # noqa: SLF001
        real(store)
        store._storage = storage  # noqa: SLF001

    def create(maker: SegmentMaker) -> File:
        file = maker._storage.open("dittomq/tmp-segment", create=True)  # noqa: SLF001
        file.truncate(0)
        file.truncate(maker.segment_bytes)
        return file

    real = Store._recover  # noqa: SLF001
    patch.setattr(Store, "_recover", recover)
    patch.setattr(SegmentMaker, "_create", create)


def acknowledged_before_the_sync(patch: Patch) -> None:
    patch.setattr(Log, "sync", _nothing)


def only_the_newest_segment_synced(patch: Patch) -> None:
    def sync(log: Log) -> None:
        for start in list(log._unsynced)[:-1]:  # noqa: SLF001 - takes the product apart
            del log._unsynced[start]  # noqa: SLF001
        real(log)

    real = Log.sync
    patch.setattr(Log, "sync", sync)


def cut_without_intent(patch: Patch) -> None:
    def save(storage: Storage, name: str, kind: bytes, value: object) -> None:
        if name != "cut-intent":
            real(storage, name, kind, value)

    real = state_file.save_json
    patch.setattr(state_file, "save_json", save)


def tail_not_kept(patch: Patch) -> None:
    patch.setattr(truncation, "_save_tail", lambda _, __, ends, generation: f"dittomq/tail-{ends[0]}-{generation}")


def zeros_not_written_over_the_tail(patch: Patch) -> None:
    """The file is made shorter and long again, and nothing of that is synced."""

    def zero(storage: Storage, path: str, keep: int, segment_bytes: int) -> None:
        with contextlib.closing(storage.open(path)) as file:
            file.truncate(keep)
            file.truncate(segment_bytes)

    patch.setattr(truncation, "_zero_rest", zero)


def cut_leaves_the_watermark(patch: Patch) -> None:
    def keep(storage: Storage, mark: recovery_point.RecoveryPoint) -> None:
        if mark.number == 1:
            real(storage, mark)

    real = recovery_point.reset
    patch.setattr(recovery_point, "reset", keep)


def cut_leaves_the_producers(patch: Patch) -> None:
    patch.setattr(producer_state, "truncate_snapshot", _nothing)


def cut_leaves_the_units(patch: Patch) -> None:
    patch.setattr(truncation, "queue_truncation", SimpleNamespace(clear=_nothing))


def cut_units_not_synced(patch: Patch) -> None:
    patch.setattr(queue_truncation, "_sync", _nothing)


def recovery_leaves_the_units(patch: Patch) -> None:
    def recover(layout: recovery.StoreLayout, *, power_lost: bool) -> recovery.Recovered:
        return real(layout, power_lost=False)

    real = recovery.recover
    patch.setattr(recovery, "recover", recover)


def rocketmq_told_of_more_than_the_queues_hold(patch: Patch) -> None:
    patch.setattr("dittomq.commitlog.store.newest_ms_before", lambda *_: 1 << 50)


def rocketmq_told_before_anything_is_synced(patch: Patch) -> None:
    def early(store: Store) -> None:
        newest_ms = store._derived.store_ms  # noqa: SLF001 - takes the product apart
        index_checkpoint.write_for_rocketmq(store._storage, newest_ms, newest_ms, 0)  # noqa: SLF001
        real(store)

    real = Store.checkpoint
    patch.setattr(Store, "checkpoint", early)


def cut_keeps_its_generation(patch: Patch) -> None:
    real = identity.save
    patch.setattr(identity, "save", lambda storage, who: real(storage, replace(who, generation=0)))


def failure_not_marked(patch: Patch) -> None:
    patch.setattr(shutdown_marker, "mark_failed", _nothing)


def failure_at_a_clean_stop_not_marked(patch: Patch) -> None:
    patch.setattr("dittomq.commitlog.store.confessed", lambda _: contextlib.nullcontext())


def loss_makes_no_stranger(patch: Patch) -> None:
    patch.setattr(OwnReplica, "draw_incarnation", _nothing)


def acks_of_unsynced_bytes_not_stamped(patch: Patch) -> None:
    real = shutdown_marker.stamp
    patch.setattr(
        shutdown_marker, "stamp", lambda storage, *, clean, acks_unsynced: real(storage, clean=clean, acks_unsynced=acks_unsynced and clean)
    )


def promise_not_synced(patch: Patch) -> None:
    def write(storage: Storage, state: replica.ReplicaState, slots: tuple[int, ...]) -> None:
        with contextlib.closing(storage.open("dittomq/replica")) as file:
            for at in slots:
                file.pwrite(replica._slot(state), at * 4_096)  # noqa: SLF001 - takes the product apart

    patch.setattr(replica, "_write", write)


def promise_written_into_both_slots_at_once(patch: Patch) -> None:
    def write(storage: Storage, state: replica.ReplicaState, slots: tuple[int, ...]) -> None:
        if slots:
            with contextlib.closing(storage.open("dittomq/replica")) as file:
                file.pwrite(replica._slot(state) * 2, 0)  # noqa: SLF001 - takes the product apart
                file.fdatasync()

    patch.setattr(replica, "_write", write)


def swap_forgets_what_was_promised(patch: Patch) -> None:
    def take(storage: Storage, copy: Storage) -> None:
        state = replica.load(copy)
        assert state is not None
        replica.create(storage, state)

    patch.setattr(store_swap, "_take_replica", take)


def pages_not_written_again(patch: Patch) -> None:
    patch.setattr(Log, "write_again", _nothing)


def side_files_replaced_without_a_sync(patch: Patch) -> None:
    def replace(storage: Storage, path: str, data: bytes) -> None:
        storage.make_folder("dittomq")
        file = storage.open("dittomq/tmp-mutant", create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()
        storage.rename("dittomq/tmp-mutant", path)
        storage.sync_folder(path.rpartition("/")[0])

    patch.setattr(state_file, "replace_file", replace)


def side_files_written_in_place(patch: Patch) -> None:
    def replace(storage: Storage, path: str, data: bytes) -> None:
        file = storage.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.fdatasync()
        file.close()
        storage.sync_folder(path.rpartition("/")[0])

    patch.setattr(state_file, "replace_file", replace)


def tables_replaced_without_a_sync(patch: Patch) -> None:
    def write(storage: Storage, path: str, data: bytes) -> None:
        storage.make_folder("dittomq")
        file = storage.open(f"dittomq/tmp-{path.replace('/', '-')}", create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()

    patch.setattr(config_files, "write_replacement", write)


def names_of_tables_not_synced(patch: Patch) -> None:
    def put(storage: Storage, path: str, *, backup: str) -> None:
        put_in_place(cast("Storage", Deaf(storage, "sync_folder", times=2)), path, backup=backup)

    patch.setattr(config_files, "put_in_place", put)


def names_not_made_durable_at_the_start(patch: Patch) -> None:
    """What a killed process named or removed is believed as it is seen."""

    def recover(store: Store) -> None:
        if store._storage.exists("dittomq/identity"):  # noqa: SLF001 - takes the product apart
            store._storage = Deaf(store._storage, "sync_folder", times=3)  # noqa: SLF001
        real(store)

    real = Store._recover  # noqa: SLF001
    patch.setattr(Store, "_recover", recover)


def swap_without_intent(patch: Patch) -> None:
    patch.setattr(store_swap, "intend", _nothing)


def swap_keeps_its_generation(patch: Patch) -> None:
    real = identity.save
    patch.setattr("dittomq.commitlog.store_swap.identity.save", lambda storage, who: real(storage, replace(who, generation=1)))


def swap_leaves_the_epoch_history(patch: Patch) -> None:
    patch.setattr(store_swap, "_FILES", tuple(path for path in store_swap._FILES if path != "dittomq/lineage"))  # noqa: SLF001


def queues_of_a_copy_forgotten(patch: Patch) -> None:
    """A log that begins late keeps where it does, and not where its queues do."""
    real = log_start_state.empty_from
    patch.setattr(log_start_state, "empty_from", lambda storage, files, dropped: real(storage, files, replace(dropped, first_offsets={})))


def minimums_forgotten(patch: Patch) -> None:
    patch.setattr(index_checkpoint, "save_minimums", _nothing)


def register_not_written_down(patch: Patch) -> None:
    patch.setattr(damage_map, "save", _nothing)


def mended_bytes_not_synced(patch: Patch) -> None:
    def rewrite(log: Log, start: int, data: bytes) -> int:
        base, _ = log.segment_of(start)
        with log._files.borrow(f"commitlog/{base:020d}") as file:  # noqa: SLF001 - takes the product apart
            file.pwrite(data, start - base)
        return start + len(data)

    patch.setattr(Log, "rewrite", rewrite)


def mended_before_the_queues_are(patch: Patch) -> None:
    """The register is shortened, and no checkpoint knows the units that were missing."""

    def file_repaired(store: Store) -> bool:
        store._file(store._damage, DamageMap())  # noqa: SLF001 - takes the product apart
        return True

    patch.setattr(Store, "file_repaired", file_repaired)


MUTANTS = {
    "checkpoint saved before the sync": Mutant(checkpoint_saved_before_the_sync, ("checkpoint",), "checkpoint:error:forget:0:9"),
    "units not synced before the checkpoint": Mutant(
        units_not_synced_before_the_checkpoint, ("checkpoint",), "checkpoint:error:forget:0:2"
    ),
    "keys not synced before the checkpoint": Mutant(keys_not_synced_before_the_checkpoint, ("checkpoint",), "checkpoint:error:forget:0:2"),
    "names of segments not synced": Mutant(names_of_segments_not_synced, ("append", "prepare"), "append:error:forget:0:2"),
    "prepared segment not synced": Mutant(prepared_segment_not_synced, ("prepare",), "prepare:error:power:0:32"),
    "prepared segment used by the next process": Mutant(
        prepared_segment_used_by_the_next_process, ("recover-unnamed", "recover-renamed"), "recover-unnamed:crash:kill:0:1"
    ),
    "prepared segment emptied by the next process": Mutant(
        prepared_segment_emptied_by_the_next_process, ("recover-renamed",), "recover-renamed:error:forget:0:65"
    ),
    "acknowledged before the sync": Mutant(acknowledged_before_the_sync, ("append",), "append:crash:kill:0:1"),
    "only the newest segment synced": Mutant(only_the_newest_segment_synced, ("append",), "append:crash:kill:0:8"),
    "cut without intent": Mutant(cut_without_intent, ("cut",), "cut:error:power:0:53"),
    "tail not kept": Mutant(tail_not_kept, ("cut",), "cut:crash:kill:0:22"),
    "zeros not written over the tail": Mutant(zeros_not_written_over_the_tail, ("cut",), "cut:crash:power:0:339"),
    "cut leaves the watermark": Mutant(cut_leaves_the_watermark, ("cut",), "cut:error:worst:0:167"),
    "cut leaves the producers": Mutant(cut_leaves_the_producers, ("cut",), "cut:error:worst:0:174"),
    "cut leaves the units": Mutant(cut_leaves_the_units, ("cut",), "cut:dead:forget:0:31"),
    "cut units not synced": Mutant(cut_units_not_synced, ("cut",), "cut:crash:power:0:17"),
    "recovery leaves the units": Mutant(recovery_leaves_the_units, ("recover-ahead",), "recover-ahead:crash:kill:0:1"),
    "RocketMQ told of more than the queues hold": Mutant(
        rocketmq_told_of_more_than_the_queues_hold, ("checkpoint",), "checkpoint:error:forget:0:163"
    ),
    "RocketMQ told before anything is synced": Mutant(
        rocketmq_told_before_anything_is_synced, ("checkpoint",), "checkpoint:error:forget:0:9"
    ),
    "cut keeps its generation": Mutant(cut_keeps_its_generation, ("cut",), "cut:dead:kill:0:8"),
    "failure not marked": Mutant(failure_not_marked, ("append", "recover-failed"), "append:dead:kill:0:1"),
    "failure at a clean stop not marked": Mutant(failure_at_a_clean_stop_not_marked, ("first-start",), "first-start:error:kill:0:84"),
    "loss makes no stranger": Mutant(loss_makes_no_stranger, ("append", "recover-failed"), "append:error:forget:0:2"),
    "acks of unsynced bytes not stamped": Mutant(acks_of_unsynced_bytes_not_stamped, ("append",), "append:crash:power:0:10"),
    "promise not synced": Mutant(promise_not_synced, ("promise",), "promise:dead:kill:0:1"),
    "promise written into both slots at once": Mutant(
        promise_written_into_both_slots_at_once, ("promise",), "promise:crash:kill:0:2", step=1
    ),
    "swap forgets what was promised": Mutant(swap_forgets_what_was_promised, ("swap",), "swap:error:kill:0:14"),
    "pages not written again": Mutant(pages_not_written_again, ("append", "recover-failed"), "append:error:kill:0:28", step=1),
    "side files replaced without a sync": Mutant(side_files_replaced_without_a_sync, ("first-start", "cut"), "first-start:crash:kill:0:1"),
    "side files written in place": Mutant(side_files_written_in_place, ("first-start", "cut"), "first-start:error:worst:0:48"),
    "tables replaced without a sync": Mutant(tables_replaced_without_a_sync, ("config",), "config:crash:power:0:10"),
    "names of tables not synced": Mutant(names_of_tables_not_synced, ("config",), "config:crash:worst:0:10"),
    "names not made durable at the start": Mutant(
        names_not_made_durable_at_the_start, ("receive", "recover-cut"), "receive:error:kill:0:63"
    ),
    "swap without intent": Mutant(swap_without_intent, ("swap",), "swap:crash:kill:0:1"),
    "swap keeps its generation": Mutant(swap_keeps_its_generation, ("swap",), "swap:error:kill:0:14"),
    "swap leaves the lineage": Mutant(swap_leaves_the_epoch_history, ("swap",), "swap:error:kill:0:14"),
    "queues of a copy forgotten": Mutant(queues_of_a_copy_forgotten, ("swap",), "swap:error:kill:0:14"),
    "register not written down": Mutant(register_not_written_down, ("holes",), "holes:crash:kill:0:71"),
    "mended bytes not synced": Mutant(mended_bytes_not_synced, ("mend",), "mend:crash:kill:0:1"),
    "mended before the queues are": Mutant(mended_before_the_queues_are, ("recover-rot",), "recover-rot:crash:power:0:159", step=3),
    "minimums forgotten": Mutant(minimums_forgotten, ("delete",), "delete:error:kill:0:7"),
}
