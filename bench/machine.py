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


def resident_bytes(pid: int) -> int:
    """Bytes of memory that the process has."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) * 1024


def processor_s(pid: int) -> float:
    """Seconds of processor time that the process has used, its own and the kernel's for it; the kernel counts steps of 10 ms."""
    user, system = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


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
