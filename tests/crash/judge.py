"""Says what a store lost or bent, by the bytes on its disk and by what it says itself.

Reads logs with the parser that shares no code with the product.
"""

import contextlib
import random
import struct
from collections import defaultdict
from collections.abc import Mapping

from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog import store_swap
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.state.damage_map import DamagedRange, DamagedRanges
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.epoch_history import EpochEntry, newest_epoch, truncate_history
from dittomq.errors import UnknownProducerId
from dittomq.metadata.formats import TOPICS, encode
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch, PhysicalOffset
from tests.crash.actor import OPTIONS, known_to, mend_all
from tests.crash.key_files import entries_of, key_files
from tests.crash.promises import Cut, Promises
from tests.crash.queue_files import QueueKey, differences, properties_of, unit_in, unit_of
from tests.simulation.parser import ParsedLog, ParsedRecord, parse_log, record_at
from tests.support.failing_storage import Crashed, CrashingStorage
from tests.support.stores import SMALL, Machine, begin_epoch, draft, queues_of

# RocketMQ's checkpoint: store times up to which all is durable in the log, the queues and the key index.
_TIMES = struct.Struct(">qqq")
# What every start writes anew or builds again, the tail of a cut, which has to last from the intent on only, and a copy's own files.
_OURS = ("dittomq/watermark", "dittomq/boot", "dittomq/replica", "dittomq/tail-", "dittomq/resync/")
_RESTLESS = (*_OURS, "lock", "abort", "consumequeue/", "index/")


class Judge:
    """Restarts the store of one machine until nothing is left to doubt. Raises AssertionError and Malformed."""

    def __init__(self, machine: Machine, promises: Promises, chance: random.Random) -> None:
        self._machine = machine
        self._promises = promises
        self._chance = chance

    def judge(self) -> None:
        """Recover, recover again, and use the store."""
        self._check_times()
        if self._chance.random() < 0.5:
            self._die_in_recovery()
        store = self._open()
        self._see_swap(store)
        self._check_words(store)
        first = self._kept()
        facts = _facts(store)
        self._check_bytes(store)
        table = self._check_table()

        self._stop()
        again = self._open()
        assert again.recovery_truncation is None, "a second recovery cuts once more"
        assert _facts(again) == facts, f"a second recovery finds {_facts(again)} where the first one found {facts}"
        changed = sorted(path for path, data in _differences(first, self._kept()))
        assert not changed, f"a second recovery changes {changed}"
        log = self._check_bytes(again)
        begins = self._check_queues(again, log)
        self._check_files(log, begins)
        self._check_keys(again, log)
        self._check_producers(again, log)
        self._check_copy()
        assert self._check_table() == table, "a config file that was read is another one now"

        self._go_on(again, log)

    def _open(self) -> Store:
        store = Store.open(self._machine.storage(), OPTIONS, chance=self._chance, wall_ms=1_000)
        if self._promises.rotten:
            self._repair(store)
        return store

    def _repair(self, store: Store) -> None:
        """What rotted is noted or found, nothing else is, and it can be mended again whatever became of the last try."""
        known = DamagedRanges(tuple(DamagedRange(*each) for each in sorted(self._promises.rotten)))
        store.dispatch(store.confirmed_at_start)
        store.verify(store.min_offset, store.end)
        for low, high in store.damaged:
            assert not DamagedRanges((DamagedRange(low, high),)).without_all(known).ranges, f"{low} to {high} was never damaged"
        mend_all(store, self._promises.log + self._promises.trying_bytes)

    def _stop(self) -> None:
        """Whatever a recovery has answered for survives the worst."""
        if self._chance.random() < 0.5:
            self._machine.kill()
        else:
            self._machine.lose_power(all_unsynced=True)

    def _die_in_recovery(self) -> None:
        crash_at, torn = self._chance.randint(1, 40), self._chance.random()
        door = CrashingStorage(self._machine.storage(), crash_at, tear=lambda size: int(size * torn))
        with contextlib.suppress(Crashed):
            Store.open(door, OPTIONS, chance=self._chance, wall_ms=1_000)
        if self._chance.random() < 0.5:
            self._machine.kill()
        else:
            self._machine.lose_power()
            self._promises.power_lost = True

    def _kept(self) -> dict[str, bytes]:
        return {path: data for path, data in self._machine.files().items() if not path.startswith(_RESTLESS)}

    def _see_swap(self, store: Store) -> None:
        """A swap is done or it is not; one that was intended is done."""
        promises = self._promises
        swapped = promises.copy is not None and store.min_offset == promises.copy.start
        assert swapped or not promises.swap_intended, "the copy is not in the store's place"
        if promises.copy is not None and swapped:
            assert store.generation > promises.generation, "the generation does not tell that the store is another one"
            promises.take_copy(promises.copy)
        left = [
            path for path in self._machine.files() if path.startswith("dittomq/aside/") or (swapped and path.startswith("dittomq/resync/"))
        ]
        assert not left, f"{left} is in nobody's way and never goes"

    def _check_copy(self) -> None:
        """A copy that was closed cleanly waits as it was left."""
        copy = self._promises.copy
        if copy is not None:
            found = Store.open(store_swap.copy_of(self._machine.storage()), OPTIONS, chance=self._chance, wall_ms=1_000)
            assert (found.min_offset, found.end, found.epoch_history) == (copy.start, len(copy.log), copy.epoch_history)
            prefix = "dittomq/resync/"
            files = {path.removeprefix(prefix): data for path, data in self._machine.files().items() if path.startswith(prefix)}
            assert parse_log(files).content == copy.log[copy.start :]

    def _check_words(self, store: Store) -> None:
        """What the store says of itself, before anybody used it."""
        promises, end = self._promises, store.end
        self._check_replica(store)
        assert store.generation >= promises.generation
        assert store.flushed == store.written_raw == end
        assert min(promises.confirmed, end) <= store.confirmed_at_start <= end, "the confirmed end went back, or beyond the log"
        assert not store.damaged, f"{store.damaged} lies below the watermark and is not whole"
        epoch_histories = [
            each for epoch_history in promises.epoch_histories for each in (epoch_history, truncate_history(epoch_history, end))
        ]
        assert store.epoch_history in epoch_histories, f"lineage {store.epoch_history} is none of {epoch_histories}"
        assert all(entry.start <= end for entry in store.epoch_history), f"an epoch outlived bytes before it: {store.epoch_history}"

    def _check_replica(self, store: Store) -> None:
        """It has forgotten nothing, and is a stranger exactly where it cannot show that it holds all that it acknowledged."""
        promises, held = self._promises, self._promises.replica
        assert known_to(store) in promises.known, f"{known_to(store)} is none of {promises.known}"
        if held is None:
            return
        assert store.replica.uuid == held.uuid, "the replica forgot who it is"
        if promises.marked_failed:
            assert store.replica != held, "a sync had failed, and it is no stranger"
        if not (promises.power_lost or promises.disk_failed or promises.tampered):
            assert store.replica == held, "a kill makes a stranger"
        if store.replica == held and not promises.disk_died and promises.cutting is None:
            assert store.end >= len(promises.log), f"{len(promises.log) - store.end} acknowledged bytes are gone, and it is no stranger"

    def _check_bytes(self, store: Store) -> ParsedLog:
        """The log on disk holds all that was promised to survive such a stop, whole, and nothing else."""
        promises = self._promises
        log = parse_log(self._machine.files())
        assert log.start in promises.begins, f"the log begins at {log.start}"
        assert (log.start, log.end) == (store.min_offset, store.end)
        self._check_tails(store)
        cut = promises.cutting
        if cut is not None and log.end == cut.to and self._tail_is_kept(cut):
            assert log.content == cut.log[log.start : cut.to]
            return log
        written = promises.log[log.start :]
        common = min(len(log.content), len(written))
        assert log.content[:common] == written[:common], "the log holds other bytes than were written"
        assert log.end >= promises.flushed, f"{promises.flushed - log.end} flushed bytes are gone"
        if not promises.power_lost and not promises.disk_failed:
            assert log.end >= len(promises.log), "a kill lost what was written"
        self._check_surplus(log)
        return log

    def _check_surplus(self, log: ParsedLog) -> None:
        """Behind what was answered lie only records whose write was under way."""
        promises = self._promises
        surplus = [record for record in log.records if record.physical_offset >= len(promises.log)]
        if promises.trying_bytes:
            assert promises.trying_bytes.startswith(log.content[len(promises.log) - log.start :])
        else:
            assert [record.body for record in surplus] == promises.trying_bodies[: len(surplus)], "records that nobody wrote"

    def _check_tails(self, store: Store) -> None:
        """What was cut is kept in side files, and they speak of no other cuts."""
        for path in self._machine.files():
            if path.startswith("dittomq/tail-"):
                assert int(path.rpartition("-")[2]) <= store.generation, f"{path} is of a cut that never was"
        for cut in self._promises.cuts:
            assert self._tail_is_kept(cut), f"the tail behind {cut.to} is not kept"

    def _tail_is_kept(self, cut: Cut) -> bool:
        files = self._machine.files()
        return cut.log[cut.to :] in [data for path, data in files.items() if path.startswith(f"dittomq/tail-{cut.to}-")]

    def _check_times(self) -> None:
        """What RocketMQ's own checkpoint calls stored is on the disk: in the log, in its queue, in the key index.

        What was stored in its very millisecond may be newer; RocketMQ goes back three seconds more.
        """
        files, promises = self._machine.files(), self._promises
        if "checkpoint" not in files or promises.swap_intended or promises.trying_deletion:
            return
        log_ms, queues_ms, keys_ms = _TIMES.unpack_from(files["checkpoint"])
        keyed = {at for path, data in files.items() if path.startswith("index/") for _, at in entries_of(data, slots=SMALL.key_sizes.slots)}
        rotten = DamagedRanges(tuple(DamagedRange(*each) for each in sorted(promises.rotten)))
        for record in parse_log({f"commitlog/{0:020d}": promises.log}).records:
            at, minimum = record.physical_offset, promises.minimums.get((record.topic, record.queue), 0)
            if at < max(promises.begins) or rotten.touches(at, at + record.size):
                continue
            if record.stored_ms < log_ms:
                assert record_at(files, at) == record, f"RocketMQ is told that the log holds all up to {log_ms}"
            if record.stored_ms < queues_ms and record.queue_offset >= minimum:
                assert unit_in(files, record, SMALL.queue_file_units) == unit_of(record), (
                    f"RocketMQ is told that queues hold all up to {queues_ms}"
                )
            if record.stored_ms < keys_ms and "KEYS" in properties_of(record):
                assert at in keyed, f"RocketMQ is told that the key index holds all up to {keys_ms}"

    def _check_queues(self, store: Store, log: ParsedLog) -> dict[QueueKey, int]:
        """Queue offsets are dense, and every queue ends and begins where it should; where they begin."""
        promises, cut = self._promises, self._promises.cutting
        store.dispatch(store.end)
        assert store.applied == store.end
        dropped = {
            key: sum(1 for _, position in entries if position < log.start)
            for key, entries in queues_of(promises.log, SMALL.segment_bytes).items()
        }
        expected: dict[tuple[str, int], list[ParsedRecord]] = defaultdict(list)
        for record in log.records:
            expected[record.topic, record.queue].append(record)
        for key in [key for key, count in dropped.items() if count]:
            expected[key]
        for key, records in expected.items():
            first = dropped.get(key, 0)
            stop = first + len(records)
            assert [record.queue_offset for record in records] == list(range(first, stop)), f"queue offsets of {key} are not dense"
            low, high = store.queue_range(*key)
            assert high == stop, f"{key} ends at {high}"
            if not promises.trying_deletion and cut is None:
                assert low == max(first, min(promises.minimums.get(key, 0), high)), f"{key} begins at {low}"
        for key in store.queues():
            assert key in expected or store.queue_range(*key)[1] == 0, f"{key} is in no record"
        return {key: store.queue_range(*key)[0] for key in store.queues()}

    def _check_files(self, log: ParsedLog, begins: Mapping[QueueKey, int]) -> None:
        """The queues on disk are those that a rebuild from the log's bytes gives, and the store finds nothing wrong with itself."""
        odd = list(differences(self._machine.files(), log.records, begins, units=SMALL.queue_file_units))
        assert odd == [], "; ".join(odd)
        if log.end > log.start:
            report = verify(open_on_disk(self._machine.beside(), "here"))
            assert report.whole, f"the store on disk finds {report.findings}"

    def _check_keys(self, store: Store, log: ParsedLog) -> None:
        """The key index is written, and is what the log makes of it."""
        store.checkpoint()
        self._check_index(log)

    def _check_index(self, log: ParsedLog) -> None:
        """It is that to the byte; where the log has lost its beginning, what follows that is."""
        found = {path.removeprefix("index/"): data for path, data in self._machine.files().items() if path.startswith("index/")}
        slots, entries = SMALL.key_sizes.slots, SMALL.key_sizes.entries
        expected = {file.name: file.encode() for file in key_files(log.records, slots=slots, entries=entries)}
        if log.start == 0:
            assert sorted(found) == sorted(expected), f"index/ holds {sorted(found)}, the log makes {sorted(expected)}"
            for name, data in expected.items():
                assert found[name] == data, f"index/{name} is not what the log makes of it"
            return
        wanted = [entry for data in expected.values() for entry in entries_of(data, slots=slots)]
        held = [entry for _, data in sorted(found.items()) for entry in entries_of(data, slots=slots) if entry[1] >= log.start]
        assert held == wanted, "the key index does not hold what the log does"

    def _check_producers(self, store: Store, log: ParsedLog) -> None:
        """Every sequence of every producer is known where the log has it, and none beyond."""
        beyond: dict[str, int] = {}
        for record in log.records:
            properties = properties_of(record)
            if "PID" in properties and not self._is_expired(store, properties):
                found = store.find_sequence(properties["PID"], int(properties["SEQ"]))
                assert found is not None
                assert found.physical_offset == record.physical_offset
                beyond[properties["PID"]] = int(properties["SEQ"]) + 1
        for producer, sequence in beyond.items():
            assert store.find_sequence(producer, sequence) is None

    def _is_expired(self, store: Store, properties: dict[str, str]) -> bool:
        """Where records were damaged, what came before them may be: that is said, and never that it is not in the log."""
        try:
            store.find_sequence(properties["PID"], int(properties["SEQ"]))
        except UnknownProducerId:
            return bool(self._promises.rotten)
        return False

    def _check_table(self) -> Table[TopicConfig]:
        """The config file is the old one or the new one, whole, and so is its `.bak`, which alone has the old one for a moment."""
        promises = self._promises
        allowed = [promises.table, *([promises.trying_table] if promises.trying_table else [])]
        table, problem = ConfigFiles(self._machine.storage(), "a/0").load(TOPICS)
        assert not problem or (problem == "is missing" and promises.trying_table is not None), f"the config file {problem}"
        assert table in allowed, "the config file is neither old nor new"
        backup = self._machine.files().get(f"{TOPICS.path}.bak")
        assert backup is None or backup in [encode(TOPICS, each) for each in promises.tables]
        return table

    def _go_on(self, store: Store, log: ParsedLog) -> None:
        """The store takes new messages, which then survive the worst as well, with what follows from them if it was closed cleanly."""
        self._machine.kill()
        store = self._open()
        begin_epoch(store, EpochEntry(Epoch(newest_epoch(store.epoch_history) + 1), 0, 9, PhysicalOffset(store.end)))
        store.append([AppendBatch([draft("orders", 0, b"afterwards"), draft("orders", 9, b"afterwards")])], 1_000)
        store.sync()
        begins = {key: store.queue_range(*key)[0] for key in store.queues()}
        if closes := self._chance.random() < 0.5:
            store.dispatch(store.end)
            store.close(clean=True)
        self._machine.lose_power(all_unsynced=True)
        end = parse_log(self._machine.files())
        assert end.content.startswith(log.content)
        assert [record.body for record in end.records[len(log.records) :]] == [b"afterwards"] * 2
        if closes:
            self._check_files(end, begins)
            self._check_index(end)
        again = self._open()
        again.dispatch(again.end)
        self._check_files(end, begins)
        offsets = [record.queue_offset for record in end.records if (record.topic, record.queue) == ("orders", 0)]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def _facts(store: Store) -> tuple[object, ...]:
    ends = store.end, store.flushed, store.confirmed_at_start
    return store.replica_uuid, known_to(store), ends, store.epoch_history, store.generation


def _differences(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    return [(path, after.get(path, b"")) for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
