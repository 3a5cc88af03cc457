"""A process becomes the other service when the group record says so, and stays the process that it is."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from dittomq.routes import Role
from tests.support.real_group import real_group, shape
from tests.support.waiting import PATIENCE_S, eventually

MOST_GROWTH_BYTES = 12 * 1024 * 1024  # pages that come and go; 40 further changes added 2 MiB
CHANGES_AT_REST = 3  # connections and threads that come and go; what ten lives leave behind is more
TWO_LIVES = """
import asyncio, os, signal
from prometheus_client import CollectorRegistry
from dittomq.broker.role import BrokerService, RoleChanged
from dittomq.rpc.health import Health
from dittomq.settings import configured
from services.process import run
from services.role_supervisor import StartConfig

class Elected:
    vitals, registry = Health(), CollectorRegistry()
    async def run(self, stop):
        raise RoleChanged(BrokerService.MASTER, "it was elected")

class Following(Elected):
    async def run(self, stop):
        await stop.wait()
        print("drained", flush=True)

def live(service):
    settings = ("node.data_dir=/nowhere", 'node.nameservers=["localhost:1"]', "listen.ops=127.0.0.1:0")
    flags = [word for setting in settings for word in ("--set", setting)]
    return run("serve", lambda: configured(StartConfig, "serve", flags, {}), lambda _: service, asked_to_end=asked_to_end)

asked_to_end = asyncio.Event()
try:
    live(Elected())
except RoleChanged:
    os.kill(os.getpid(), signal.SIGTERM)
    raise SystemExit(live(Following()))
"""


@pytest.mark.tier("nightly")
def test_a_process_that_changed_its_role_many_times_holds_no_more_than_before(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(1)) as group:
        pids = {name: group.cluster.pid(name) for name in group.copies}

        def there_and_back(times: int) -> None:
            for _ in range(times):
                group.let_lead("a/1")
                group.let_lead("a/0")

        there_and_back(3)
        before = {name: Held.by(pid) for name, pid in pids.items()}
        there_and_back(5)

        assert {name: group.cluster.pid(name) for name in group.copies} == pids
        assert {name: group.mq.admin.get_broker(group.address(name)).role for name in pids} == {"a/0": Role.SYNC_MASTER, "a/1": Role.SLAVE}
        for name, pid in pids.items():
            most = before[name].and_changes_at_rest()
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


def test_a_process_that_is_asked_to_end_between_two_services_ends_the_second() -> None:
    ended = subprocess.run([sys.executable, "-c", TWO_LIVES], capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "drained"), ended.stderr
