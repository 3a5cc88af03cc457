"""Real processes whose disk or operating system refuses something: they end with one sentence, and lose nothing that was acknowledged."""

import re
import resource
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.event_log import Fate
from tests.support.mounts import ThinDisk, loop_device, mounted_ext4, new_image
from tests.support.privileges import bound_by_modes
from tests.support.real_group import MASTER, SEGMENT_BYTES, RealGroup, real_group, shape
from tests.support.traffic import Publishing, messages, nothing_is_lost

pytestmark = pytest.mark.tier("nightly")

REFUSED, INTERNAL = 1, 128
DISK_BYTES = 64 * 1024 * 1024
THIN_BYTES = 24 * 1024 * 1024
MIN_FREE_BYTES = 8 * 1024 * 1024
SOME = 500
MANY = 100_000  # a quick disk takes 10,000 in the second after which the master next writes what it is denied
STOPS = "the node stops, check its disk and start it again"


@dataclass(frozen=True, slots=True)
class Bench:
    """A group whose master has a disk of its own, mounted in `disk`, and all that was published."""

    group: RealGroup
    publishing: Publishing
    disk: ExitStack

    def publish_some(self) -> None:
        """Publish what was not published yet."""
        first = len(self.publishing.told.outcomes)
        assert first < MANY, "the master took all of it"
        self.publishing.publish(messages(first, SOME, size=200))

    def publish_until_it_ends(self) -> str:
        """Publish until the master's process ends as one whose disk has failed; its last words."""
        while self.group.cluster.is_alive(MASTER):
            self.publish_some()
        assert self.group.exit_status(MASTER) == INTERNAL
        return self.group.last_words(MASTER)

    def nothing_is_lost(self, *stopped: str) -> None:
        """The old master starts, says how it was stopped, and every copy holds what was told. An operator lets it lead again."""
        self.group.cluster.start_node(MASTER)
        for name in self.group.slaves[-1:]:
            self.group.let_lead(name)  # what may have lost something is another replica, which is not elected
        self.group.cluster.wait_in_sync()
        assert self.group.stopped(MASTER) in stopped
        self.publishing.settle()
        assert self.publishing.told.bodies(Fate.UNKNOWN) == []
        nothing_is_lost(self.group, self.publishing.told)
        self.group.let_lead(MASTER)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with loop_device(new_image(tmp_path_factory.mktemp("device") / "image", DISK_BYTES)) as made:
        yield made


@pytest.fixture(scope="module")
def bench(device: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("refusing")
    with ExitStack() as disk:
        disk.enter_context(mounted_ext4(device, folder / "cluster" / "a-0"))
        with started(folder, 1, disk) as bench:
            yield bench


@contextmanager
def started(folder: Path, slaves: int, disk: ExitStack) -> Iterator[Bench]:
    """The master's disk is mounted."""
    small = {"store.min_free_bytes": MIN_FREE_BYTES}
    with real_group(folder, shape(slaves, master=small)) as group, group.mq.producer(timeout_s=1.0, retry_s=0.5) as producer:
        bench = Bench(group, Publishing(producer), disk)
        bench.publish_some()
        yield bench


def test_short_write_stops_the_master_and_its_torn_record_is_truncated(bench: Bench) -> None:
    group = bench.group
    limit = group.wait_equal() % SEGMENT_BYTES + 50_000
    _, hard = resource.prlimit(group.cluster.pid(MASTER), resource.RLIMIT_FSIZE)
    resource.prlimit(group.cluster.pid(MASTER), resource.RLIMIT_FSIZE, (limit, hard))

    said = bench.publish_until_it_ends()

    assert said.startswith(f"dittomq serve master: write of {group.cluster.data_dir(MASTER)}/commitlog/")
    assert said.endswith("failed: [Errno 27] File too large; the node stops, check its disk and start it again")
    bench.nothing_is_lost("failed fsync")
    [cut] = group.events(MASTER, "tail_truncated")
    assert (group.cluster.data_dir(MASTER) / cut["side_file"]).stat().st_size == cut["saved_bytes"] > 0


def test_a_master_without_descriptors_stops_with_the_reason(bench: Bench) -> None:
    pid = bench.group.cluster.pid(MASTER)
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))

    said = bench.publish_until_it_ends()

    root = bench.group.cluster.data_dir(MASTER)
    assert re.fullmatch(rf"dittomq serve master: \w+ of {root}/\S+ failed: \[Errno 24\] Too many open files: '{root}/\S+'; {STOPS}", said)
    bench.nothing_is_lost("power loss")  # it could not even say what had happened


def test_disk_that_turns_read_only_stops_the_master(bench: Bench, device: Path) -> None:
    """Its start is refused until the disk can be written."""
    group, root = bench.group, bench.group.cluster.data_dir(MASTER)
    Path(f"/sys/fs/ext4/{device.name}/trigger_fs_error").write_text("a test", encoding="ascii")

    said = bench.publish_until_it_ends()

    assert re.fullmatch(rf"dittomq serve master: \w+ of {root}/\S+ failed: \[Errno (5|30)\] .*; {STOPS}", said)
    group.cluster.start_node(MASTER)
    assert group.exit_status(MASTER) == REFUSED
    assert re.fullmatch(rf"dittomq serve master: the store {root} cannot be opened: .*Read-only file system.*", group.last_words(MASTER))
    bench.disk.close()
    bench.disk.enter_context(mounted_ext4(device, root))
    bench.nothing_is_lost("killed")  # the disk took not even that the process had failed


DENIED: dict[str, tuple[str, int]] = {
    "the folder": (".", 0),
    "the segment in use": ("commitlog/{}", 0),
    "to write that segment": ("commitlog/{}", stat.S_IRUSR),
    "to make files": ("dittomq", stat.S_IRUSR | stat.S_IXUSR),
    "a table": ("config/topics.json", 0),
}


@pytest.mark.parametrize("what", DENIED)
def test_master_denied_a_permission_refuses_to_start_and_changes_nothing(bench: Bench, what: str) -> None:
    """One sentence says why."""
    group, root = bench.group, bench.group.cluster.data_dir(MASTER)
    if group.cluster.is_alive(MASTER):
        bench.publish_some()
        group.wait_equal()
        group.cluster.stop_node(MASTER)
    before, (name, mode) = content_of(root), DENIED[what]
    end = group.parsed_log(MASTER).end
    path = root / name.format(f"{end - end % SEGMENT_BYTES:020d}")
    usual = path.stat().st_mode
    path.chmod(mode)
    lines = len(group.cluster.log_file(MASTER).read_text().splitlines())

    try:
        bound_by_modes(lambda: group.cluster.start_node(MASTER))
        assert group.exit_status(MASTER) == REFUSED
    finally:
        path.chmod(usual)

    said = [line for line in group.cluster.log_file(MASTER).read_text().splitlines()[lines:] if not line.startswith("{")]
    assert len(said) == 1
    assert said[0].startswith("dittomq serve master: ")
    assert f"Permission denied: '{path}" in said[0]
    assert content_of(root) == before


def content_of(root: Path) -> dict[str, bytes]:
    """Messages and tables."""
    found = [path for name in ("commitlog", "config") for path in (root / name).rglob("*")]
    return {f"{path}": path.read_bytes() for path in found if path.is_file()}


def test_a_master_that_is_denied_its_files_while_it_runs_stops_with_the_reason(bench: Bench) -> None:
    group, own = bench.group, bench.group.cluster.data_dir(MASTER) / "dittomq"
    if group.cluster.is_alive(MASTER):
        group.cluster.stop_node(MASTER)
    bound_by_modes(lambda: group.cluster.start_node(MASTER))
    group.cluster.wait_in_sync()
    usual = own.stat().st_mode
    own.chmod(0)

    try:
        said = bench.publish_until_it_ends()
    finally:
        own.chmod(usual)

    assert re.fullmatch(rf"dittomq serve master: \w+ of {own}/\S+ failed: \[Errno 13\] Permission denied: '{own}/\S+'; {STOPS}", said)
    bench.nothing_is_lost("killed")


def test_lone_master_on_a_disk_that_loses_pages_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """The disk loses what it could not write back."""
    thin = ThinDisk(tmp_path / "cluster" / "a-0", tmp_path / "behind", THIN_BYTES)
    with thin.made(), ExitStack() as disk:
        disk.enter_context(thin.mounted())
        with started(tmp_path, 0, disk) as bench:
            thin.runs_out()

            said = bench.publish_until_it_ends()

            assert said.startswith(f"dittomq serve master: fdatasync of {thin.path}/commitlog/")
            shown = content_of(thin.path)
            disk.close()
            thin.has_room()
            disk.enter_context(thin.mounted())
            assert content_of(thin.path) != shown, "nothing was lost, so nothing is proven"
            bench.nothing_is_lost("failed fsync", "power loss")
