"""Calls of every RPC with requests that a fuzzer makes up, and what their answers may be."""

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import Message
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from tests.fuzz.mutations import Choices, request_bytes
from tests.fuzz.served_node import ServedNode
from tools.rpc_lines import LINES

_DEADLINE_S: Final = 0.4
_MOST_REQUESTS: Final = 4
_MOST_ANSWERS: Final = 4
_WARM_CALLS: Final = 2_000
_MOST_GROWTH_KIB: Final = 128 * 1024
_OF_GRPC: Final = ("Exception deserializing request", "Received message larger than max", "Deadline Exceeded", "Failed parsing")
_OF_A_TRACEBACK: Final = ("Traceback", 'File "', "Unexpected <class")
_NO_REASON: Final = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, slots=True)
class FuzzedRpc:
    """One RPC, an example of its request, and the usual port of its service."""

    method: str
    example: Message
    port: int
    takes_stream: bool
    answers_stream: bool


class Calls:
    """Calls a node; AssertionError for an answer that no caller may get."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node
        self._channels: dict[int, Any] = {port: grpc.insecure_channel(f"127.0.0.1:{here}") for port, here in node.ports.items()}
        self._rpcs = [_rpc(method) for method in sorted(LINES)]
        self._calls = 0
        self._warm_kib = 0

    def call(self, choices: Choices) -> None:
        """One call."""
        rpc = self._rpcs[choices.ConsumeIntInRange(0, len(self._rpcs) - 1)]
        count = choices.ConsumeIntInRange(1, _MOST_REQUESTS) if rpc.takes_stream else 1
        requests = [request_bytes(rpc.example, choices) for _ in range(count)]
        try:
            self._send(rpc, requests)
        except grpc.RpcError as refused:
            _check_refusal(rpc, refused)
        self._node.check()
        self._check_growth()

    def _send(self, rpc: FuzzedRpc, requests: list[bytes]) -> None:
        channel, path = self._channels[rpc.port], f"/{rpc.method}"
        match rpc.takes_stream, rpc.answers_stream:
            case False, False:
                channel.unary_unary(path)(requests[0], timeout=_DEADLINE_S)
            case False, True:
                _take_some(channel.unary_stream(path)(requests[0], timeout=_DEADLINE_S))
            case _:
                _take_some(channel.stream_stream(path)(iter(requests), timeout=_DEADLINE_S))

    def _check_growth(self) -> None:
        self._calls += 1
        used_kib = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1_024
        if self._calls == _WARM_CALLS:
            self._warm_kib = used_kib
        if self._calls > _WARM_CALLS:
            assert used_kib < self._warm_kib + _MOST_GROWTH_KIB, f"it grew from {self._warm_kib:,} KiB to {used_kib:,}"


def _rpc(name: str) -> FuzzedRpc:
    service, _, method = name.rpartition("/")
    found: Any = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]  # type: ignore[no-untyped-call]
    example = message_factory.GetMessageClass(found.input_type)()
    json_format.Parse(LINES[name].request, example)
    return FuzzedRpc(name, example, LINES[name].port, found.client_streaming, found.server_streaming)


def _take_some(answers: Any) -> None:
    for number, _ in enumerate(answers, start=1):
        if number == _MOST_ANSWERS:
            answers.cancel()
            return


def _check_refusal(rpc: FuzzedRpc, refused: grpc.RpcError) -> None:
    """It names one of our reasons, or it is gRPC's own word about bytes that are no request, or about time."""
    details = refused.details() or ""
    assert not any(words in details for words in _OF_A_TRACEBACK), f"{rpc.method}: {details}"
    if refused.code() in _NO_REASON or any(words in details for words in _OF_GRPC):
        return
    assert isinstance(refused, grpc.Call)
    status = rpc_status.from_call(refused)
    info = error_details_pb2.ErrorInfo()
    reasons = [info.reason for detail in status.details if detail.Unpack(info)] if status is not None else []
    assert reasons, f"{rpc.method}: {refused.code()} without a reason: {details}"
