"""How much memory this process may use: the machine's, or less where a control group says so, as it does for a container."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def memory_bytes(root: Path = Path("/")) -> int:
    """Bytes of memory of the machine or, where that is less, of the strictest control group around this process; never raises OSError.

    Source: the kernel's documents cgroup-v2 (`memory.max`) and cgroup-v1/memory (`memory.limit_in_bytes`). `root`: where proc and sys are.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(root)])


def _limits(root: Path) -> Iterator[int]:
    """The limit of each group around this process, the machine's own among them, that has one."""
    for line in _read(root / "proc/self/cgroup").splitlines():  # "0::/path" or "4:memory:/path"
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            told = _read(mount / each / name).strip()
            if told.isdecimal() and int(told) > 0:
                yield int(told)


def _read(path: Path) -> str:
    """What the file says; nothing where there is none that can be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
