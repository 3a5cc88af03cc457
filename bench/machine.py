"""Where the figures were made: without it a ratio says little, and a rate nothing."""

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine(folder: Path) -> dict[str, str]:
    """Processor, memory, disk, kernel, versions, and how busy the machine is now."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": f"{os.cpu_count()} × {_processor()}",
        "memory": f"{memory / 2**30:.0f} GiB",
        "file system": _file_system(folder),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """The type of the longest mount point that holds the folder."""
    mounts = (line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines())
    holding = [(len(point), kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(holding)[1]
