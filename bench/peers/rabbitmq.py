"""RabbitMQ: a quorum queue on three nodes; a confirm leaves when a majority has the message on disk."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.amqp import AmqpPublisher
from bench.peers.running import PeerFailed, free_ports, listens, program, run, running, wait_until

NAME = "RabbitMQ, quorum queue × 3"
_NODES = 3
_QUEUE = "bench"
_KEPT = 20_000
_BODY = b"x" * 1024
_BIN = "/usr/lib/rabbitmq/bin"


class RabbitMq:
    """A publisher on the first node; `pids` are those of all."""

    def __init__(self, publisher: AmqpPublisher, pids: Sequence[int]) -> None:
        self.pids = pids
        self._publisher = publisher

    def one_caller(self, calls: int) -> list[float]:
        """Milliseconds of as many confirmed publishes of 1 KiB, one after the other."""
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            self._publisher.publish(_QUEUE, _BODY)
            times.append((time.perf_counter() - began) * 1000)
        return times


@contextmanager
def rabbitmq_in(folder: Path) -> Iterator[RabbitMq]:
    """A cluster of three with an empty queue; NotInstalled where there is none."""
    server, control = (program(name, "rabbitmq-server", _BIN) for name in ("rabbitmq-server", "rabbitmqctl"))
    epmd = program("epmd", "rabbitmq-server")
    mapper, *ports = free_ports(1 + 2 * _NODES)
    folder.mkdir(parents=True)
    cookie = folder / ".erlang.cookie"
    cookie.write_text("bench")
    cookie.chmod(0o400)
    (folder / "plugins").write_text("[].")
    (folder / "rabbitmq.conf").write_text("vm_memory_high_watermark.absolute = 2GB\nloopback_users.guest = false\n")
    with ExitStack() as stack:
        stack.enter_context(running([epmd, "-address", "127.0.0.1", "-port", str(mapper)], folder))
        wait_until(lambda: listens(mapper), "epmd did not listen")
        places = [_environment(folder, number, mapper, ports) for number in range(_NODES)]
        nodes = [
            stack.enter_context(running([server], folder, environment, name=f"node{number}")) for number, environment in enumerate(places)
        ]
        _join(control, places)
        publisher = stack.enter_context(AmqpPublisher(ports[0]))
        publisher.declare_quorum(_QUEUE, _NODES, _KEPT)
        yield RabbitMq(publisher, [node.pid for node in nodes])


def _join(control: str, places: list[Mapping[str, str]]) -> None:
    """Make one cluster of the nodes, one after the other."""
    first = places[0]["RABBITMQ_NODENAME"]
    for environment in places:
        wait_until(lambda environment=environment: _is_up(control, environment), "RabbitMQ did not start", 120)  # type: ignore[misc]
        if environment["RABBITMQ_NODENAME"] != first:
            for command in (["stop_app"], ["join_cluster", first], ["start_app"]):
                _control(control, environment, *command)


def _environment(folder: Path, number: int, mapper: int, ports: list[int]) -> Mapping[str, str]:
    return {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench{number}@localhost",
        "RABBITMQ_NODE_PORT": str(ports[number]),
        "RABBITMQ_DIST_PORT": str(ports[_NODES + number]),
        "RABBITMQ_MNESIA_BASE": str(folder / f"data{number}"),
        "RABBITMQ_LOG_BASE": str(folder / f"log{number}"),
        "RABBITMQ_PID_FILE": str(folder / f"pid{number}"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",  # idle schedulers leave the processors to others
    }


def _is_up(control: str, environment: Mapping[str, str]) -> bool:
    try:
        _control(control, environment, "await_startup")
    except PeerFailed:
        return False
    return True


def _control(control: str, environment: Mapping[str, str], *command: str) -> None:
    run([control, "-n", environment["RABBITMQ_NODENAME"], *command], env=os.environ | dict(environment))
