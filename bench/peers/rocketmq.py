"""RocketMQ 5.3.3: a master that waits for its slave, and its own Java client.

SYNC_MASTER, SYNC_FLUSH, inSyncReplicas=2: an answer leaves when the master has flushed and the slave has the bytes in its page
cache. That is less than what dittomq is measured with. Its jars come by Maven, as for the tests of compatibility.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.copying import Copied, first_segment, wait_for_bytes
from bench.peers.running import NotInstalled, PeerFailed, end, free_ports, listens, running, wait_until
from tests.interop.release import Release, release

NAME = "RocketMQ 5.3.3, SYNC_MASTER, SYNC_FLUSH, inSyncReplicas=2"
SHORT = "RocketMQ 5.3.3"
_VERSION = "5.3.3"
_SEGMENT_BYTES = 1 << 30
_RECORD_BYTES = 1_150  # 1 KiB and what is around it
_TIMEOUT_S = 180.0
_OPENED = ("java.lang", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
_LOGBACK = Path(__file__).parents[2] / "tests" / "interop" / "rocketmq" / "logback.xml"
_SETTINGS: Mapping[str, object] = {
    "brokerClusterName": "bench",
    "brokerName": "a",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "flushDiskType": "SYNC_FLUSH",
    "inSyncReplicas": 2,
    "diskMaxUsedSpaceRatio": 95,
    "mappedFileSizeCommitLog": _SEGMENT_BYTES,
}


class RocketMq:
    """A running pair and a client that waits for orders."""

    def __init__(self, java: "_Java", folder: Path, stack: ExitStack) -> None:
        self._java = java
        self._folder = folder
        self._stack = stack
        nameserver, *brokers = free_ports(5)
        self._nameserver = f"127.0.0.1:{nameserver}"
        self._ports = {"master": brokers[:2], "slave": brokers[2:]}
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._slave: subprocess.Popen[bytes] | None = None
        self._client: subprocess.Popen[str] | None = None

    @property
    def pids(self) -> list[int]:
        """Those of the nodes and of the client."""
        nodes = (*self._nodes, self._slave)
        return [process.pid for process in (*nodes, self._client) if process is not None and process.poll() is None]

    def start(self) -> None:
        """Start both, wait until the slave has joined, and warm the client up."""
        port = self._nameserver.partition(":")[2]
        config = self._file("nameserver", {"listenPort": port, "bindAddress": "127.0.0.1"})
        argv = self._java.argv("nameserver", "256m", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(config))
        for name, command in (("nameserver", argv), ("master", self._broker("master", 0, "SYNC_MASTER"))):
            self._nodes.append(self._stack.enter_context(running(command, self._folder, name=name)))
        self._slave = self._stack.enter_context(running(self._broker("slave", 1, "SLAVE"), self._folder, name="slave"))
        for each in (self._ports["master"][0], self._ports["slave"][0]):
            wait_until(lambda each=each: listens(each), "RocketMQ did not listen")  # type: ignore[misc]
        self._start_client()
        deadline = time.monotonic() + _TIMEOUT_S
        while True:  # until the slave has joined, the master refuses: SLAVE_NOT_AVAILABLE
            try:
                self._send(1, 1, 100)
                break
            except PeerFailed:
                if time.monotonic() > deadline:
                    raise
                self._start_client()
        self._send(8, 256, 30)
        self._send(8, 32, 100)
        self._send(1, 1, 1_000)

    def one_caller(self, calls: int) -> list[float]:
        """Milliseconds of as many synchronous sends, one after the other."""
        return self._send(1, 1, calls)[1]

    def batches(self, callers: int, batch: int, calls: int) -> float:
        """Messages a second: each of `callers` sends `calls` batches and waits for each."""
        return callers * batch * calls / self._send(callers, batch, calls)[0]

    def fill(self, size: int) -> None:
        """Send about `size` bytes more. Stay below one segment, with what warmed up: a new slave copies only the last one."""
        self._send(8, 256, max(1, size // (8 * 256 * _RECORD_BYTES)))

    def copy(self) -> Copied:
        """Empty the slave and start it anew, beside an idle master. CopyEnded when its process ends meanwhile."""
        assert self._slave is not None
        end(self._slave)
        shutil.rmtree(self._folder / "slave-store")
        size = _end_of(self._log("master"))
        slave = self._log("slave")
        began = time.perf_counter()
        process = self._slave = self._stack.enter_context(running(self._broker("slave", 1, "SLAVE"), self._folder, name="slave"))

        def ended() -> bool:
            return process.poll() is not None

        first = wait_for_bytes(slave, 0, 64, _TIMEOUT_S, ended=ended)
        last = wait_for_bytes(slave, size - 4_096, 4_096, _TIMEOUT_S, ended=ended)
        return Copied(size, first - began, last - first)

    def _log(self, name: str) -> Path:
        return first_segment(self._folder / f"{name}-store")

    def _send(self, callers: int, batch: int, calls: int) -> tuple[float, list[float]]:
        assert self._client is not None
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(f"{callers} {batch} {calls}\n")
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        if not line:
            raise PeerFailed("RocketMQ's client did not get SEND_OK; see client.log")
        seconds, *each = map(float, line.split())
        return seconds, each

    def _start_client(self) -> None:
        program = str(Path(__file__).with_name("Sends.java"))
        master = f"127.0.0.1:{self._ports['master'][0]}"
        log = self._stack.enter_context((self._folder / "client.log").open("ab"))
        self._client = subprocess.Popen(
            self._java.argv("client", "512m", program, self._nameserver, master),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
        self._stack.callback(_end_client, self._client)
        assert self._client.stdout is not None
        if self._client.stdout.readline().strip() != "ready":
            raise PeerFailed("RocketMQ's client did not start; see client.log")

    def _broker(self, name: str, number: int, role: str) -> list[str]:
        port, ha_port = self._ports[name]
        store = self._folder / f"{name}-store"
        own = {
            "brokerId": number,
            "brokerRole": role,
            "listenPort": port,
            "haListenPort": ha_port,
            "namesrvAddr": self._nameserver,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
        }
        config = self._file(name, {**_SETTINGS, **own})
        return self._java.argv(name, "1g", "org.apache.rocketmq.broker.BrokerStartup", "-c", str(config))

    def _file(self, name: str, settings: Mapping[str, object]) -> Path:
        file = self._folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return file


@dataclass(frozen=True, slots=True)
class _Java:
    release: Release
    folder: Path

    def argv(self, name: str, heap: str, *program: str) -> list[str]:
        home = self.folder / f"{name}-home"
        conf = home / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for each in ("broker", "namesrv"):
            shutil.copy(_LOGBACK, conf / f"logback_{each}.xml")
        opened = [f"--add-{how}=java.base/{package}=ALL-UNNAMED" for package in _OPENED for how in ("opens", "exports")]
        return [
            str(self.release.java), f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=512m", "-XX:+UseG1GC", *opened,
            f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-Drocketmq.client.logUseSlf4j=true",
            f"-Drmq.logback.configurationFile={_LOGBACK}", f"-Dlogback.configurationFile={_LOGBACK}",
            "-cp", self.release.class_path, *program,
        ]  # fmt: skip


@contextmanager
def rocketmq_in(folder: Path) -> Iterator[RocketMq]:
    """A pair whose slave has joined, and a warm client; NotInstalled without a JDK or Maven."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise NotInstalled(f"no {tool} here: RocketMQ needs a JDK 17 and Maven; on Debian: apt-get install default-jdk-headless maven")
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        pair = RocketMq(_Java(release(_VERSION), folder), folder, stack)
        pair.start()
        yield pair


def _end_client(client: "subprocess.Popen[str]") -> None:
    client.kill()
    client.wait()
    for pipe in (client.stdin, client.stdout):
        if pipe is not None:
            pipe.close()


def _end_of(file: Path) -> int:
    """The end of what a segment holds, to 64 KiB: by bisection over blocks that are not all zeros."""
    with file.open("rb") as log:
        low, high = 0, file.stat().st_size >> 16
        while low < high:
            middle = (low + high) // 2
            if os.pread(log.fileno(), 1 << 16, middle << 16).strip(b"\0"):
                low = middle + 1
            else:
                high = middle
    return max(low - 1, 1) << 16
