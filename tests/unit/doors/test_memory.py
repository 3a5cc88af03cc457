"""How much memory a process may use, by what the kernel's files say: machines without limits, containers, groups within groups."""

import os
from pathlib import Path

import pytest

from dittomq.doors.memory import memory_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MIB = 1024 * 1024
NO_LIMIT_V1 = "9223372036854771712\n"


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A folder with such files in proc and sys."""
    for path, content in {"proc/self/cgroup": groups, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {}, MACHINE),
        ("0::/\n", {"sys/fs/cgroup/memory.max": f"{256 * MIB}\n"}, 256 * MIB),
        ("0::/\n", {"sys/fs/cgroup/memory.max": "max\n"}, MACHINE),
        ("0::/a/b\n", {"sys/fs/cgroup/a/memory.max": f"{64 * MIB}\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 64 * MIB),
        ("0::/a/b\n", {"sys/fs/cgroup/a/memory.max": f"{64 * MIB}\n", "sys/fs/cgroup/a/b/memory.max": f"{32 * MIB}\n"}, 32 * MIB),
        ("4:cpu,memory:/x\n0::/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{128 * MIB}\n"}, 128 * MIB),
        ("4:memory:/x\n", {"sys/fs/cgroup/memory/x/memory.limit_in_bytes": NO_LIMIT_V1}, MACHINE),
        ("4:cpu:/x\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{128 * MIB}\n"}, MACHINE),
        ("0::/\n", {"sys/fs/cgroup/memory.max": "nonsense"}, MACHINE),
    ],
    ids=["none", "v2", "v2 max", "v2 of the parent", "v2 of its own", "v1 in a container", "v1 none", "v1 of others", "nonsense"],
)
def test_memory_is_the_strictest_limit_around_the_process(tmp_path: Path, groups: str, files: dict[str, str], expected: int) -> None:
    assert memory_bytes(machine(tmp_path, groups, files)) == expected


def test_a_system_without_these_files_has_all_of_the_machines_memory(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path) == MACHINE
