"""Real nodes whose files were changed behind their back: what is damaged is named, never served and never copied; what cannot be used is
refused, and comes back from the group when it is emptied."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dittomq.client.sync_client import SyncReader
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.state import recovery_point
from dittomq.errors import CorruptRecord
from tests.simulation.parser import ParsedRecord
from tests.support.command_line import CommandLine
from tests.support.event_log import Told, wrong_reads
from tests.support.real_group import MASTER, QUEUES, SEGMENT_BYTES, TOPIC, RealGroup, real_group, shape
from tests.support.replayable_chance import replayable
from tests.support.traffic import Publishing, messages, nothing_is_lost, read_all
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

COUNT = 8_000
REFUSED, PARTLY = 1, 3
DIFFERS = 1  # a bit of an audit's exit code


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealGroup]:
    master = {"replication.ack_timeout_ms": 500, "replication.heartbeat_ms": 200}
    with real_group(tmp_path_factory.mktemp("damaged"), shape(master=master)) as running:
        yield running


@pytest.fixture(scope="module")
def told(group: RealGroup) -> Told:
    """Three segments, equal everywhere."""
    with group.mq.producer() as producer:
        publishing = Publishing(producer)
        publishing.publish(messages(0, COUNT, size=200))
    assert group.wait_equal() > 2 * SEGMENT_BYTES
    return publishing.told


def flip(root: Path, position: int) -> None:
    """Change one bit of the log."""
    with (root / "commitlog" / f"{position - position % SEGMENT_BYTES:020d}").open("r+b") as file:
        file.seek(position % SEGMENT_BYTES)
        [byte] = file.read(1)
        file.seek(position % SEGMENT_BYTES)
        file.write(bytes([byte ^ 4]))


def some_records(group: RealGroup, segment: int, count: int) -> list[ParsedRecord]:
    """As many that lie inside that segment, none beside another."""
    inside = range(segment * SEGMENT_BYTES + 1, (segment + 1) * SEGMENT_BYTES)
    found = [record for record in group.parsed_log(MASTER).records if record.physical_offset in inside][::2]
    return sorted(replayable().sample(found, count), key=lambda record: record.physical_offset)


def serves_all_but(group: RealGroup, told: Told, name: str, damaged: Sequence[ParsedRecord]) -> None:
    """The node calls these damaged, and serves all the others; a/2 serves all that was told."""
    served, said = served_around(group, name)
    whole = read_all(group.mq, "a/2")
    gone = {(record.queue, record.queue_offset) for record in damaged}
    assert sorted(said) == sorted(gone)
    assert list(wrong_reads(told, whole))[:3] == []
    assert served == {queue: [place for place in places if (queue, place[0]) not in gone] for queue, places in whole.items()}


def served_around(group: RealGroup, name: str) -> tuple[dict[int, list[tuple[int, bytes]]], list[tuple[int, int]]]:
    """All that one node serves, by queue, and the places of the messages that it calls damaged."""
    served: dict[int, list[tuple[int, bytes]]] = {queue: [] for queue in range(QUEUES)}
    damaged = []
    for queue, found in served.items():
        reader, at = group.mq.reader(TOPIC, queue, node=name, max_messages=512), 0
        while not reads_on(reader, at, found):
            at = found[-1][0] + 1 if found else 0
            damaged.append((queue, at))
            at += 1
    return served, damaged


def reads_on(reader: SyncReader, at: int, found: list[tuple[int, bytes]]) -> bool:
    """Read from there on; whether that came to the queue's end, and not to damage."""
    try:
        found += ((int(message.queue_offset), message.body) for message in reader.messages(at, until_end=True))
    except CorruptRecord:
        return False
    return True


def test_flipped_bit_in_a_cold_segment_is_never_served_and_is_repaired(group: RealGroup, told: Told, tmp_path: Path) -> None:
    """Nor is it copied; another replica gives the bytes."""
    root, (victim, second) = group.cluster.data_dir(MASTER), some_records(group, 0, 2)
    eventually(lambda: all_verified(group), "heartbeats have proven what is to be damaged: they would find it, too")
    flip(root, victim.physical_offset + victim.size // 2)
    found = CommandLine(tmp_path).run("log", "verify", f"{root}")
    assert (found.code, f"{victim.physical_offset:,}" in found.out) == (3, True)

    serves_all_but(group, told, MASTER, [victim])
    # Whoever looks after the group hears of it, and the master gets its record back from a slave.
    eventually(lambda: any('code="DATA_LOSS"' in sample for sample in group.metrics(MASTER)), "the call is counted")
    repaired(group, MASTER, [victim])
    nothing_is_lost(group, told)

    # After a restart the slaves see it too. They are not cut; one that copies goes on behind it; nobody falls out of sync for it.
    group.cluster.stop_node(MASTER)
    flip(root, second.physical_offset + second.size // 2)
    group.cluster.stop_node("a/2")
    shutil.rmtree(group.cluster.data_dir("a/2"))
    group.cluster.start()
    group.cluster.wait_in_sync()
    repaired(group, MASTER, [victim, second])
    eventually(lambda: not group.status("a/2").nodes[0].damaged_bytes, "a/2 has what its master could not give it")
    assert [event for name in group.copies for event in group.events(name, "log_truncated")] == []
    nothing_is_lost(group, told)


def all_verified(group: RealGroup) -> bool:
    status = group.status()
    return [view.verified_offset for view in status.nodes if view.role == "slave"] == [status.end] * 2


def repaired(group: RealGroup, name: str, victims: Sequence[ParsedRecord]) -> None:
    """The node gets these records, and nothing else, back from other copies."""
    eventually(lambda: len(group.events(name, "range_repaired")) == len(victims), f"{name} mends what is damaged")
    ranges = [(event["start"], event["end"]) for event in group.events(name, "range_repaired")]
    assert ranges == [(victim.physical_offset, victim.physical_offset + victim.size) for victim in victims]
    assert name not in {event["source"] for event in group.events(name, "range_repaired")}
    eventually(lambda: group.status(name).nodes[0].damaged_bytes == 0, f"{name} says that it is whole")


FIELDS = {"the size": 1, "the magic": 6, "the queue offset": 27, "the position": 35, "the body": 150}


def test_flipped_bits_in_the_last_segment_are_repaired_without_truncation(group: RealGroup, told: Told) -> None:
    """They flip before a start, which names them."""
    root, end = group.cluster.data_dir("a/1"), group.wait_equal()
    victims = some_records(group, 2, len(FIELDS))
    eventually(lambda: flushed_as_written_down(root) == end, "a/1 has written down how much is durable")
    for name in ("a/1", MASTER):  # without its master it serves what it has
        group.cluster.kill(name)
    for victim, field in zip(victims, FIELDS.values(), strict=True):
        flip(root, victim.physical_offset + field)
    (root / "dittomq" / "checkpoint").unlink(missing_ok=True)  # the start reads what a checkpoint would spare it

    group.cluster.start_node("a/1")
    eventually(lambda: group.status("a/1").readable == end, "a/1 serves all it has")

    assert group.events("a/1", "store_opened")[-1]["end"] == end
    named = [(event["start"], event["end"]) for event in group.events("a/1", "store_damaged")]
    assert named == [(victim.physical_offset, victim.physical_offset + victim.size) for victim in victims]
    repaired(group, "a/1", victims)  # from a/2: their master is away
    assert group.events("a/1", "tail_truncated") == []
    group.cluster.start()
    group.cluster.wait_in_sync()
    assert group.events("a/1", "log_truncated") == []
    nothing_is_lost(group, told)


def flushed_as_written_down(root: Path) -> int:
    mark = recovery_point.load(OsStorage(root))
    return mark.flushed if mark is not None else 0


@pytest.mark.parametrize("name", [MASTER, "a/2"])
def test_unusable_store_is_refused_and_left_alone(group: RealGroup, told: Told, name: str) -> None:
    """Its node comes back empty, and gets all that the group has."""
    root = group.cluster.data_dir(name)
    end = group.wait_equal()
    group.cluster.stop_node(name)

    (root / "dittomq" / "lineage").write_bytes(b"DTMQ" + bytes(100))
    before = bytes_of(root)
    group.cluster.start_node(name)
    assert group.exit_status(name) == REFUSED
    assert group.last_words(name).endswith(
        "dittomq/lineage is damaged: it does not begin as it should; restore it, or empty the data_dir to copy all from the group"
    )
    assert bytes_of(root) == before

    shutil.rmtree(root)
    group.cluster.start_node(name)
    group.let_lead("a/1")  # an empty disk is another replica, which is not elected
    assert group.stopped(name) == "empty"
    assert group.wait_equal() == end
    group.let_lead(MASTER)
    nothing_is_lost(group, told)


RUINS: dict[str, Callable[[Path], object]] = {
    "a segment is missing in the middle": lambda root: (root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink(),
    "a segment is cut short": lambda root: os.truncate(root / "commitlog" / f"{SEGMENT_BYTES:020d}", 5_000),
}


@pytest.mark.parametrize("name", [MASTER, "a/2"])
@pytest.mark.parametrize("ruin", RUINS)
def test_a_node_whose_segment_is_gone_fills_it_from_the_group_and_is_never_refused(
    group: RealGroup, told: Told, ruin: str, name: str
) -> None:
    end = group.wait_equal()
    group.cluster.stop_node(name)
    RUINS[ruin](group.cluster.data_dir(name))

    group.cluster.start_node(name)
    group.let_lead("a/1")  # what lost bytes is another replica, which is not elected

    eventually(lambda: group.status(name).nodes[0].damaged_bytes == 0, f"{name} has its segment back")
    assert "are fetched from other copies" in " ".join(event["note"] for event in group.events(name, "store_reported"))
    assert group.wait_equal() == end
    group.let_lead(MASTER)
    nothing_is_lost(group, told)


def bytes_of(root: Path) -> dict[Path, bytes]:
    """The log, and what says whose it is."""
    return {path: path.read_bytes() for path in [*(root / "commitlog").iterdir(), root / "dittomq/lineage", root / "dittomq/identity"]}


def test_master_with_damaged_derived_files_rebuilds_them_and_leads(group: RealGroup, told: Told) -> None:
    """Temporary files are damaged too."""
    own = group.cluster.data_dir(MASTER) / "dittomq"
    group.wait_equal()
    group.cluster.stop_node(MASTER)
    for name in ("boot", "checkpoint", "producers"):
        (own / name).write_bytes(b"rot" + (own / name).read_bytes()[3:])
    mark = (own / "watermark").read_bytes()
    (own / "watermark").write_bytes(b"rot" + mark[3:])  # the newer or the older one of its two slots

    group.cluster.start_node(MASTER)
    group.let_lead("a/1")  # it cannot show that it lost nothing, so it is another replica
    group.let_lead(MASTER)

    noted = " ".join(event["note"] for event in group.events(MASTER, "store_reported"))
    assert all(f"dittomq/{name} is damaged" in noted for name in ("checkpoint", "producers"))
    assert group.stopped(MASTER) == "power loss", "a stamp that cannot be read says nothing"
    nothing_is_lost(group, told)


def test_repair_command_fetches_cold_damage_while_all_nodes_run(group: RealGroup, told: Told, tmp_path: Path) -> None:
    group.cluster.wait_in_sync()
    victims = {name: some_records(group, segment, 1)[0] for name, segment in (("a/1", 0), (MASTER, 1))}
    commands, at = CommandLine(tmp_path), ("--nameserver", group.cluster.nameserver)

    def harm(name: str) -> None:
        eventually(lambda: all_verified(group), "heartbeats have proven what is to be damaged: they would find it, too")
        flip(group.cluster.data_dir(name), victims[name].physical_offset + victims[name].size // 2)

    harm("a/1")
    around = commands.run("repair", "a/1", "--bytes", f"{SEGMENT_BYTES}..{2 * SEGMENT_BYTES}", *at)
    slave = commands.run("repair", "a/1", "--json", *at)
    harm(MASTER)  # only now: what a/1 has found lets all behind it be compared again
    everybody = commands.run("repair", "--broker", "a", *at)

    assert (around.code, "nothing is damaged" in around.out) == (0, True), around
    assert slave.code == 0, slave
    [node] = json.loads(slave.out)["nodes"]
    victim = victims["a/1"]
    assert [(each["start"], each["end"]) for each in node["ranges"]] == [(victim.physical_offset, victim.physical_offset + victim.size)]
    assert node["ranges"][0]["source"] in {MASTER, "a/2"}
    assert everybody.code == 0, everybody
    assert f"bytes {victims[MASTER].physical_offset:,} to" in everybody.out
    assert commands.run("repair", "a/9", *at).code == REFUSED
    nothing_is_lost(group, told)


def log_bytes(group: RealGroup) -> dict[str, bytes]:
    """What lies in the files of each copy up to the end of all."""
    end = group.wait_equal()
    folders = {name: group.cluster.data_dir(name) / "commitlog" for name in group.copies}
    return {name: b"".join(path.read_bytes() for path in sorted(folder.iterdir()))[:end] for name, folder in folders.items()}


@pytest.mark.spark
def test_repair_command_repairs_what_the_last_audit_found(group: RealGroup, told: Told, tmp_path: Path) -> None:
    """It names the bytes that no replica has."""
    group.cluster.wait_in_sync()
    eventually(lambda: all_verified(group), "heartbeats have proven what is to be damaged: they would find it, too")
    [on_slave], [on_master, everywhere] = some_records(group, 0, 1), some_records(group, 1, 2)
    middle, whole = everywhere.physical_offset + everywhere.size // 2, log_bytes(group)
    flip(group.cluster.data_dir("a/1"), on_slave.physical_offset + on_slave.size // 2)
    flip(group.cluster.data_dir(MASTER), on_master.physical_offset + on_master.size // 2)
    for number, name in enumerate(group.copies):
        flip(group.cluster.data_dir(name), middle + number)
    commands, at = CommandLine(tmp_path), ("--nameserver", group.cluster.nameserver)
    audit = commands.run("audit", *at)
    assert audit.code & DIFFERS, audit

    repair = commands.run("repair", "--broker", "a", "--run", "last", "--json", *at)

    assert repair.code == PARTLY, repair
    found = {node["node"]: node["ranges"] for node in json.loads(repair.out)["nodes"]}
    for name in group.copies:
        others = set(group.copies) - {name}
        repaired = {each["start"]: each["end"] for each in found[name] if each["source"] in others}
        expected = [victim for node, victim in (("a/1", on_slave), (MASTER, on_master)) if node == name]
        assert repaired == {victim.physical_offset: victim.physical_offset + victim.size for victim in expected}
        [left] = [each for each in found[name] if each["start"] not in repaired]
        assert (left["start"], left["end"]) == (everywhere.physical_offset, everywhere.physical_offset + everywhere.size)
        assert left["source"] is None
        of_it = {"topic": TOPIC, "queue": everywhere.queue, "first": everywhere.queue_offset, "end": everywhere.queue_offset + 1}
        assert (left["messages"], left["more_messages"]) == ([of_it], False)
        assert all(other in left["problem"] for other in others)
        assert group.status(name).nodes[0].damaged_bytes == everywhere.size
        with pytest.raises(CorruptRecord):
            group.mq.reader(TOPIC, everywhere.queue, node=name).pull(everywhere.queue_offset)

    # One copy gets the bytes back, by hand: it heals itself, and the others from it.
    flip(group.cluster.data_dir("a/2"), middle + group.copies.index("a/2"))
    healed = commands.run("repair", "a/2", "--run", "last", *at)
    assert (healed.code, "still are" in healed.out and ", 0 still are" not in healed.out) == (0, False), healed
    assert commands.run("repair", "--broker", "a", "--run", "last", *at).code == 0
    assert log_bytes(group) == whole
    nothing_is_lost(group, told)
