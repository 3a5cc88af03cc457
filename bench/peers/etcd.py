"""etcd: three members on loopback; a put is flushed by two of them before it is answered. Its gRPC door, by this project's gRPC."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc

from bench.peers.running import free_ports, listens, program, running, wait_until

NAME = "etcd × 3"
_MEMBERS = 3
_KEYS = 1_000
_DEADLINE_S = 10.0
_BODY = b"x" * 1024


class Etcd:
    """A connection to one member; `pids` are those of all."""

    def __init__(self, channel: grpc.Channel, pids: Sequence[int]) -> None:
        self.pids = pids
        self._put = channel.unary_unary("/etcdserverpb.KV/Put", request_serializer=bytes, response_deserializer=bytes)

    def one_caller(self, calls: int) -> list[float]:
        """Milliseconds of as many puts of 1 KiB, one after the other."""
        times = []
        for call in range(calls):
            request = put_request(b"bench/%d" % (call % _KEYS), _BODY)
            began = time.perf_counter()
            self._put(request, timeout=_DEADLINE_S)
            times.append((time.perf_counter() - began) * 1000)
        return times


def put_request(key: bytes, value: bytes) -> bytes:
    """etcdserverpb.PutRequest: field 1 is the key, field 2 the value."""
    return b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes((low | 0x80,)) + _varint(high) if high else bytes((low,))


@contextmanager
def etcd_in(folder: Path) -> Iterator[Etcd]:
    """Three members that have elected a leader, and a connection to one; NotInstalled where there is none."""
    server = program("etcd", "etcd-server")
    ports = free_ports(2 * _MEMBERS)
    clients, peers = ports[:_MEMBERS], ports[_MEMBERS:]
    members = ",".join(f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers))
    pids = []
    with ExitStack() as stack:
        for number in range(_MEMBERS):
            client, peer = f"http://127.0.0.1:{clients[number]}", f"http://127.0.0.1:{peers[number]}"
            argv = [
                server, "--name", f"m{number}", "--data-dir", str(folder / f"m{number}"), "--listen-client-urls", client,
                "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", members, "--initial-cluster-state", "new", "--quota-backend-bytes", str(8 << 30),
            ]  # fmt: skip
            pids.append(stack.enter_context(running(argv, folder, name=f"m{number}")).pid)
        wait_until(lambda: all(map(listens, clients)), "etcd did not listen")
        etcd = Etcd(stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{clients[0]}")), pids)
        wait_until(lambda: _answers(etcd), "etcd did not elect a leader")
        yield etcd


def _answers(etcd: Etcd) -> bool:
    try:
        etcd.one_caller(1)
    except grpc.RpcError:
        return False
    return True
