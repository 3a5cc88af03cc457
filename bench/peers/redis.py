"""Redis: a server and its replica, for the one thing that it does and a log does too: going on where a connection was cut."""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

from bench.peers.running import free_ports, listens, program, running, wait_until

NAME = "Redis, PSYNC"
_VALUE_BYTES = 65_536
_LOOK_EVERY_S = 0.002
_BACKLOG = "128mb"


class Redis:
    """A running pair; `pids` are those of both."""

    def __init__(self, ports: tuple[int, int], processes: "tuple[Popen[bytes], Popen[bytes]]") -> None:
        self._primary, self._follower = ports
        self._replica = processes[1]
        self.pids = [process.pid for process in processes]

    def resume_s(self, size: int) -> float:
        """Seconds from the replica's waking to the end of the gap: it was stopped and cut off while `size` bytes were written."""
        self._replica.send_signal(signal.SIGSTOP)
        command(self._primary, "CLIENT", "KILL", "TYPE", "replica")
        with _connected(self._primary) as connection:
            for number in range(size // _VALUE_BYTES):
                connection.sendall(_encoded("SET", f"gap:{number % 8}", "x" * _VALUE_BYTES))
                connection.recv(64)
        end = int(self._info(self._primary, "master_repl_offset"))
        began = time.perf_counter()
        self._replica.send_signal(signal.SIGCONT)
        while int(self._info(self._follower, "slave_repl_offset") or 0) < end:
            time.sleep(_LOOK_EVERY_S)
        return time.perf_counter() - began

    def _info(self, port: int, field: str) -> str:
        lines = command(port, "INFO", "replication").splitlines()
        return next((line.partition(":")[2] for line in lines if line.startswith(f"{field}:")), "")

    def is_linked(self) -> bool:
        """Whether the replica follows."""
        return self._info(self._follower, "master_link_status") == "up"


@contextmanager
def redis_in(folder: Path) -> Iterator[Redis]:
    """A pair in memory; NotInstalled where there is none."""
    server = program("redis-server", "redis-server")
    primary, follower = free_ports(2)
    with ExitStack() as stack:
        processes = []
        for port, more in ((primary, []), (follower, ["--replicaof", "127.0.0.1", str(primary)])):
            home = folder / str(port)
            argv = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
            argv += ["--repl-backlog-size", _BACKLOG, "--repl-diskless-sync-delay", "0", *more]
            processes.append(stack.enter_context(running(argv, home)))
            wait_until(lambda port=port: listens(port), "Redis did not listen")  # type: ignore[misc]
        pair = Redis((primary, follower), (processes[0], processes[1]))
        wait_until(pair.is_linked, "the replica did not follow")
        yield pair


def command(port: int, *words: str) -> str:
    """The answer to one command, as it came."""
    with _connected(port) as connection:
        connection.sendall(_encoded(*words))
        answer = connection.recv(65_536)
        if answer[:1] == b"$":
            head, _, rest = answer.partition(b"\r\n")
            while len(rest) < int(head[1:]):
                rest += connection.recv(65_536)
            return rest.decode()
        return answer.decode()


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _encoded(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(f"${len(word)}\r\n{word}\r\n".encode() for word in words)
