"""What the sweep does to a store: short stories in which every kind of change to the disk happens.

`before` brings the machine into a state, `deeds` is the part that is struck at each of its calls.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dittomq.epoch_history import EpochEntry
from dittomq.errors import StorageFailure
from dittomq.offsets import Epoch, PhysicalOffset
from tests.crash.actor import Actor
from tests.crash.promises import Known
from tests.crash.repair_scripts import mends, receives_holes, starts_and_mends, with_rot, with_rot_and_power_lost
from tests.crash.script_setups import CHUNK_BYTES, in_use, master_log, nothing, several_segments
from tests.simulation.disk import Inode
from tests.support.failing_storage import Crashed, Harm
from tests.support.stores import SMALL

_SEGMENT_0 = f"commitlog/{0:020d}"
_SEGMENT_1 = f"commitlog/{SMALL.segment_bytes:020d}"


@dataclass(frozen=True, slots=True)
class Script:
    """A story. `before` may end lives of its own."""

    before: Callable[[Actor], None]
    deeds: Callable[[Actor], None]


def first_start(actor: Actor) -> None:
    actor.open()
    actor.epoch()
    actor.append(3)
    actor.sync()
    actor.dispatch()
    actor.mark()
    actor.append(1)
    actor.close()
    actor.open()


def appends_and_rolls(actor: Actor) -> None:
    actor.append(2)
    actor.zero()
    actor.append(12)
    actor.sync()
    actor.append(5, producer=True)
    actor.dispatch()
    actor.mark()
    actor.append(8, topic="events")
    actor.zero()
    actor.sync()
    actor.mark()
    actor.append(1)


def prepares_and_rolls(actor: Actor) -> None:
    actor.prepare()
    actor.zero()
    actor.append(14)
    actor.sync()
    actor.mark()
    actor.prepare()
    actor.append(14)
    actor.prepare()
    actor.append(20, producer=True)  # the segment before has no durable name yet
    actor.dispatch()
    actor.checkpoint()
    actor.append(20)
    actor.prepare()
    actor.cut(30)
    actor.epoch()
    actor.append(20)
    actor.prepare()
    actor.close()
    actor.open()


def receives(actor: Actor) -> None:
    log, at, epoch_history = master_log(), 0, (EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)),)
    actor.open()
    actor.adopt(epoch_history)
    while at < len(log):
        stop = min(at + CHUNK_BYTES, at - at % SMALL.segment_bytes + SMALL.segment_bytes, len(log))
        actor.receive(log[at:stop])
        at = stop
        if at // CHUNK_BYTES % 4 == 0:
            actor.prepare()
        if at // CHUNK_BYTES % 3 == 0:
            actor.sync()
            actor.dispatch()
            actor.mark()
    actor.adopt((*epoch_history, replace(epoch_history[0], epoch=Epoch(2), start=actor.store.end)))
    actor.checkpoint()


def checkpoints(actor: Actor) -> None:
    actor.append(9, queues=1)
    actor.dispatch()
    actor.checkpoint()
    actor.append(20, queues=1)
    actor.append(2, topic="fresh")
    actor.dispatch()
    actor.checkpoint()
    actor.append(1)
    actor.checkpoint()


def cuts(actor: Actor) -> None:
    actor.append(12)
    actor.dispatch()
    actor.cut(5)
    actor.epoch()
    actor.append(4, topic="events")
    actor.dispatch()
    actor.checkpoint()
    actor.append(9, producer=True)
    actor.cut(20)
    actor.epoch()
    actor.append(9)
    actor.sync()
    actor.dispatch()
    actor.cut(1_000)
    actor.epoch()
    actor.append(2)


def deletes(actor: Actor) -> None:
    actor.delete("events")
    actor.append(3, topic="events")
    actor.dispatch()
    actor.checkpoint()
    actor.delete("orders")
    actor.append(2)
    actor.sync()
    actor.dispatch()
    actor.mark()


def drops(actor: Actor) -> None:
    actor.drop(1)
    actor.append(3)
    actor.sync()
    actor.dispatch()
    actor.mark()
    actor.drop(2)
    actor.append(2, topic="events")
    actor.dispatch()
    actor.checkpoint()


def in_the_middle_of_a_drop(actor: Actor) -> None:
    """A crash between two of the segments that go."""
    several_segments(actor)
    actor.door.strike_in(7, Harm.CRASH)
    try:
        actor.drop(3)
    except Crashed:
        actor.is_killed()
    assert len(actor.promises.begins) == 2, "the drop had an end"


_COPIED = (EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)), EpochEntry(Epoch(4), 0, 7_004, PhysicalOffset(20_000)))


def beside_a_copy(actor: Actor) -> None:
    """A slave's store with tables, a cut and a deletion behind it, and a copy of what its master still has."""
    in_use(actor)
    actor.know(Known("4f", 3, 5, 12))
    actor.save_table(5)
    actor.cut(3)
    actor.delete("events")
    actor.checkpoint()
    actor.copy_anew(master_log(), _COPIED, SMALL.segment_bytes)


def copies_anew(actor: Actor) -> None:
    actor.copy_anew(master_log(), _COPIED, SMALL.segment_bytes)
    actor.throw_copy_away()
    actor.copy_anew(master_log(), _COPIED, 2 * SMALL.segment_bytes)
    actor.append(1)


def swaps(actor: Actor) -> None:
    actor.swap()
    actor.append(1)
    actor.close()
    actor.open()
    actor.epoch()
    actor.append(2)
    actor.sync()


def in_the_middle_of_a_swap(actor: Actor) -> None:
    """A crash between two of the steps that follow the intent."""
    beside_a_copy(actor)
    actor.swap()
    actor.is_killed()
    actor.door.strike_in(9, Harm.CRASH)
    try:
        actor.open()
    except Crashed:
        actor.is_killed()
    assert actor.promises.copy is not None, "the swap had an end"


def promises_epochs(actor: Actor) -> None:
    actor.know(Known("4f", 3, 5, 12))
    actor.append(2)
    actor.know(Known("4f", 6, 6, 13))
    actor.close()
    actor.open()
    actor.know(Known("", 6, 9, 0))
    actor.know(Known("7a", 7, 9, 1))
    actor.append(1)


def saves_tables(actor: Actor) -> None:
    actor.save_table(5)
    actor.append(1)
    actor.save_table(500)
    actor.save_table(1)


def restarts(actor: Actor) -> None:
    """Recovery, and what a broker does at once behind it."""
    actor.open()
    actor.epoch()
    actor.append(2)
    actor.sync()
    actor.dispatch()
    actor.mark()


def starts_and_rolls(actor: Actor) -> None:
    actor.open()
    actor.epoch()
    actor.prepare()
    actor.append(20)
    actor.sync()
    actor.dispatch()
    actor.mark()
    actor.append(2)


def with_a_segment_under_two_names(actor: Actor) -> None:
    """Power was lost behind a roll, after the disk had written the new name by itself: the old one is there too."""
    in_use(actor)
    actor.prepare()
    disk = actor.machine.disk
    disk.sync_folder("dittomq")
    actor.append(14)
    disk.sync_folder("commitlog")
    for path in (_SEGMENT_0, _SEGMENT_1):
        disk.names.files[path].sync()
    actor.loses_power(all_unsynced=True)
    assert disk.names.files["dittomq/tmp-segment"] is disk.names.files[_SEGMENT_1]


def with_a_segment_that_lost_its_name(actor: Actor) -> None:
    """The same, and the disk had not written the new name: the old one has the segment's bytes."""
    in_use(actor)
    actor.prepare()
    disk = actor.machine.disk
    disk.sync_folder("dittomq")
    actor.append(14)
    for path in (_SEGMENT_0, _SEGMENT_1):
        disk.names.files[path].sync()
    actor.loses_power(all_unsynced=True)
    assert disk.names.files["dittomq/tmp-segment"].pages
    assert _SEGMENT_1 not in disk.names.files


def after_a_kill(actor: Actor) -> None:
    in_use(actor)
    actor.append(14, producer=True)
    actor.is_killed()


def after_a_power_loss(actor: Actor) -> None:
    in_use(actor)
    actor.append(14)
    actor.dispatch()
    actor.loses_power()


def with_queues_ahead_of_the_log(actor: Actor) -> None:
    """Power was lost behind messages that could be read before they were flushed; the disk had written their units by itself."""
    in_use(actor)
    actor.append(20)
    actor.append(4, topic="fresh")
    actor.dispatch()
    disk = actor.machine.disk
    for inode in disk.inodes_below("consumequeue"):
        inode.sync()
    disk.sync_below("consumequeue")
    actor.loses_power(all_unsynced=True)


def behind_a_torn_tail(actor: Actor) -> None:
    """Bytes of records that never became whole lie behind the end, in two segments."""
    in_use(actor)
    end = len(actor.promises.log)
    actor.is_killed()
    disk = actor.machine.disk
    disk.names.files[_SEGMENT_0].write(memoryview(b"torn" * 100), end, disk.chance)
    later = disk.names.files[_SEGMENT_1] = Inode()
    later.truncate(SMALL.segment_bytes, disk.chance)
    later.write(memoryview(b"later" * 10), 600, disk.chance)
    actor.loses_power()


def in_the_middle_of_a_cut(actor: Actor) -> None:
    """A crash between two of the steps that follow the intent."""
    in_use(actor)
    actor.append(12)
    actor.dispatch()
    actor.checkpoint()
    actor.door.strike_in(18, Harm.CRASH)
    try:
        actor.cut(9)
    except Crashed:
        actor.is_killed()
    assert actor.promises.cutting is not None, "the cut had an end"


def without_derived_files(actor: Actor) -> None:
    """Everything that can be built again from the log is damaged."""
    in_use(actor)
    actor.append(6)
    actor.sync()
    actor.is_killed()
    for name in ("checkpoint", "producers", "boot"):
        actor.damage(f"dittomq/{name}")


def after_a_failed_sync(actor: Actor) -> None:
    in_use(actor)
    actor.append(6)
    actor.door.strike_in(1, Harm.ERROR)
    try:
        actor.sync()
    except StorageFailure:
        actor.broke()
    actor.is_killed()


def after_a_clean_stop(actor: Actor) -> None:
    in_use(actor)
    actor.close()


SCRIPTS = {
    "first-start": Script(nothing, first_start),
    "append": Script(in_use, appends_and_rolls),
    "prepare": Script(in_use, prepares_and_rolls),
    "receive": Script(nothing, receives),
    "checkpoint": Script(in_use, checkpoints),
    "cut": Script(in_use, cuts),
    "delete": Script(in_use, deletes),
    "drop": Script(several_segments, drops),
    "copy": Script(in_use, copies_anew),
    "swap": Script(beside_a_copy, swaps),
    "promise": Script(in_use, promises_epochs),
    "config": Script(in_use, saves_tables),
    "mend": Script(with_rot, mends),
    "holes": Script(nothing, receives_holes),
    "recover-clean": Script(after_a_clean_stop, restarts),
    "recover-killed": Script(after_a_kill, restarts),
    "recover-power": Script(after_a_power_loss, restarts),
    "recover-ahead": Script(with_queues_ahead_of_the_log, restarts),
    "recover-torn": Script(behind_a_torn_tail, restarts),
    "recover-renamed": Script(with_a_segment_under_two_names, starts_and_rolls),
    "recover-unnamed": Script(with_a_segment_that_lost_its_name, starts_and_rolls),
    "recover-cut": Script(in_the_middle_of_a_cut, restarts),
    "recover-drop": Script(in_the_middle_of_a_drop, restarts),
    "recover-swap": Script(in_the_middle_of_a_swap, restarts),
    "recover-damaged": Script(without_derived_files, restarts),
    "recover-rot": Script(with_rot_and_power_lost, starts_and_mends),
    "recover-failed": Script(after_a_failed_sync, restarts),
}
