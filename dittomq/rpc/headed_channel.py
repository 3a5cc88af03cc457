"""A channel whose calls all carry headers that say who calls."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import grpc
import grpc.aio

from dittomq.doors.transport import Transport

Headers = Sequence[tuple[str, str]]


def headed(channel: grpc.aio.Channel, transport: Transport, address: str) -> grpc.aio.Channel:
    """The channel to `address`, on which each call says who calls, where this process has a token. Raises Unavailable, see Transport."""
    return HeadedChannel(channel, lambda: transport.headers(address)) if transport.headers(address) else channel


class HeadedChannel(grpc.aio.Channel):
    """Calls on `channel`, each with the headers that hold when it is made beside its own."""

    def __init__(self, channel: grpc.aio.Channel, headers: Callable[[], Headers]) -> None:
        self._channel = channel
        self._headers = headers

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._with_headers(self._channel.unary_unary(*arguments, **options))

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._with_headers(self._channel.unary_stream(*arguments, **options))

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._with_headers(self._channel.stream_unary(*arguments, **options))

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._with_headers(self._channel.stream_stream(*arguments, **options))

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._channel.close()

    def _with_headers(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, metadata: Headers | None = None, **options: Any) -> Any:
            return call(*arguments, metadata=(*(metadata or ()), *self._headers()), **options)

        return called
