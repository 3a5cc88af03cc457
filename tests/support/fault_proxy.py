"""Stands between a real slave and its real master, hears every frame of the replication stream, and passes on what a test makes of it."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import grpc

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb

Said = pb.ReplicateRequest
Heard = pb.ReplicateResponse

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["ReplicationService"].full_name
_STREAMS: Final = 16
_OPTIONS: Final = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Meddling:
    """Passes everything on as it is, in both directions. A test says otherwise; each direction of a stream has one thread."""

    def up(self, frame: Said) -> list[Said]:
        """What the master gets when the slave says that."""
        return [frame]

    def down(self, frame: Heard) -> list[Heard]:
        """What the slave gets when the master says that."""
        return [frame]


@dataclass(slots=True)
class Meddler:
    """A replication port of its own. `meddling` is asked about every frame of a replication stream, other calls pass as they are.

    `streams` counts how often a slave has dialled.
    """

    master: Callable[[], tuple[str, int]]
    meddling: Meddling = field(default_factory=Meddling)
    streams: int = 0
    address: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def running(self) -> Iterator["Meddler"]:
        """It answers while the block runs."""
        with ThreadPoolExecutor(_STREAMS) as threads:
            server = grpc.server(threads, options=_OPTIONS)
            handler = grpc.stream_stream_rpc_method_handler(self._replicate, Said.FromString, Heard.SerializeToString)
            streams = grpc.method_handlers_generic_handler(_SERVICE, {"Replicate": handler})
            server.add_generic_rpc_handlers((streams, _Others(self.master)))
            self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            server.start()
            try:
                yield self
            finally:
                server.stop(0).wait()

    def _replicate(self, frames: Iterator[Said], context: Any) -> Iterator[Heard]:
        self.streams += 1
        host, port = self.master()
        with grpc.insecure_channel(f"{host}:{port}", _OPTIONS) as channel:
            calling: Any = channel.stream_stream(f"/{_SERVICE}/Replicate", Said.SerializeToString, Heard.FromString)
            answers = calling(self._said(frames))
            context.add_callback(answers.cancel)
            try:
                yield from self._heard(answers)
            except grpc.RpcError:
                context.set_trailing_metadata(answers.trailing_metadata())
                context.abort(answers.code(), answers.details())

    def _heard(self, frames: Iterator[Heard]) -> Iterator[Heard]:
        for frame in frames:
            with self._lock:
                passed = self.meddling.down(frame)
            yield from passed

    def _said(self, frames: Iterator[Said]) -> Iterator[Said]:
        with contextlib.suppress(grpc.RpcError):  # the slave has left
            for frame in frames:
                with self._lock:
                    passed = self.meddling.up(frame)
                yield from passed


@dataclass(frozen=True, slots=True)
class _Others(grpc.GenericRpcHandler):
    """Passes every other call on, as bytes."""

    master: Callable[[], tuple[str, int]]

    def service(self, details: Any) -> Any:
        """How a call of that method is answered."""

        def passed(frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
            host, port = self.master()
            headers = tuple(header for header in context.invocation_metadata() if header.key != "user-agent")
            with grpc.insecure_channel(f"{host}:{port}", _OPTIONS) as channel:
                calling: Any = channel.stream_stream(details.method)
                answers = calling(frames, metadata=headers)
                context.add_callback(answers.cancel)
                try:
                    context.send_initial_metadata(answers.initial_metadata())
                    yield from answers
                    context.set_trailing_metadata(answers.trailing_metadata())
                except grpc.RpcError:
                    context.set_trailing_metadata(answers.trailing_metadata())
                    context.abort(answers.code(), answers.details())

        return grpc.stream_stream_rpc_method_handler(passed)
