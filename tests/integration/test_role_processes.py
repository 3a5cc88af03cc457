"""A process that must be the other service becomes it, and stays the process that it is."""

from pathlib import Path

from dittomq.broker.role import BrokerService, Grant, save_grant
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.offsets import Epoch, PhysicalOffset
from tests.support.real_group import real_group, shape
from tests.support.waiting import eventually


def test_processes_that_find_their_roles_changed_become_the_other_service_under_the_same_pids(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(1)) as group:
        cluster = group.cluster
        for name in ("a/1", "a/0"):
            cluster.stop_node(name)
        save_grant(OsStorage(cluster.data_dir("a/0")), Grant(BrokerService.SLAVE, 1, Epoch(9), "a/1", PhysicalOffset(0)))
        save_grant(OsStorage(cluster.data_dir("a/1")), Grant(BrokerService.MASTER, 0, Epoch(9), "a/0", PhysicalOffset(0)))

        cluster.start()
        cluster.wait_in_sync()

        pids = {name: cluster.pid(name) for name in ("a/0", "a/1")}
        assert group.status("a/1").writable
        assert not group.status("a/0").writable
        for name, module in (("a/0", b"services.slave"), ("a/1", b"services.master")):
            [back] = eventually(lambda name=name: group.events(name, "comes_back"), f"{name} has logged it")  # type: ignore[misc]
            assert back["service"] in module.decode()
            assert module in Path(f"/proc/{pids[name]}/cmdline").read_bytes()
        assert set(cluster.stop()) == {"nameserver", "a/0", "a/1"}
