"""A process that must be the other service becomes it, and stays the process that it is."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dittomq.broker.role import BrokerService, Grant, save_grant
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import Role
from tests.support.real_group import real_group, shape
from tests.support.waiting import eventually

MOST_GROWTH_BYTES = 12 * 1024 * 1024  # pages that come and go; 40 further changes added 2 MiB
CHANGES_AT_REST = 3  # connections and threads that come and go; what ten lives leave behind is more


def test_processes_that_find_their_roles_changed_become_the_other_service_under_the_same_pids(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(1)) as group:
        cluster = group.cluster
        for name in ("a/1", "a/0"):
            cluster.stop_node(name)
        save_grant(OsStorage(cluster.data_dir("a/0")), Grant(BrokerService.SLAVE, 1, Epoch(9), "a/1", PhysicalOffset(0)))
        save_grant(OsStorage(cluster.data_dir("a/1")), Grant(BrokerService.MASTER, 0, Epoch(9), "a/0", PhysicalOffset(0)))

        cluster.start()
        pids = {name: cluster.pid(name) for name in ("a/0", "a/1")}
        cluster.wait_in_sync()

        assert {name: cluster.pid(name) for name in ("a/0", "a/1")} == pids
        assert group.status("a/1").writable
        assert not group.status("a/0").writable
        for name, service, role in (("a/0", "slave", Role.SLAVE), ("a/1", "master", Role.SYNC_MASTER)):
            [back] = eventually(lambda name=name: group.events(name, "comes_back"), f"{name} has logged it")  # type: ignore[misc]
            assert back["service"] == service
            assert group.mq.admin.get_broker(group.address(name)).role == role
        assert set(cluster.stop()) == {"nameserver", "a/0", "a/1"}


def test_a_process_that_has_changed_its_role_many_times_holds_no_more_files_threads_or_memory_than_before(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(1)) as group:

        def lead(name: str) -> None:
            eventually(lambda: group.mq.admin.change_role(name), f"{name} follows and can be promoted")
            eventually(lambda: group.status(name).writable, f"{name} leads")
            eventually(lambda: {view.state for view in group.status(name).nodes} == {"leading", "in sync"}, f"{name} is followed")

        def there_and_back(times: int) -> None:
            for _ in range(times):
                lead("a/1")
                lead("a/0")

        there_and_back(3)
        before = {name: Held.by(group.cluster.pid(name)) for name in group.copies}
        there_and_back(5)

        for name in group.copies:
            pid, most = group.cluster.pid(name), before[name].and_changes_at_rest()
            eventually(lambda pid=pid, most=most: Held.by(pid).is_within(most), f"{name} holds no more than {most}")  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds."""

    files: int
    threads: int
    memory_bytes: int

    @classmethod
    def by(cls, pid: int) -> Self:
        """That process, now."""
        process = Path(f"/proc/{pid}")
        resident_pages = int((process / "statm").read_text().split()[1])
        return cls(
            len(list((process / "fd").iterdir())), len(list((process / "task").iterdir())), resident_pages * os.sysconf("SC_PAGE_SIZE")
        )

    def and_changes_at_rest(self) -> Self:
        """The most that it may come to without a leak."""
        return type(self)(self.files + CHANGES_AT_REST, self.threads + CHANGES_AT_REST, self.memory_bytes + MOST_GROWTH_BYTES)

    def is_within(self, most: Self) -> bool:
        """Whether none of it is more."""
        return self.files <= most.files and self.threads <= most.threads and self.memory_bytes <= most.memory_bytes
