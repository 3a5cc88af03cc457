"""Hears what masters and slaves tell each other, and what producers are answered, at the moment it is delivered: the bytes of the wire."""

from typing import Protocol

from dittomq._pb.ditto.messaging.v1.messaging_pb2 import PublishStreamResponse
from dittomq._pb.ditto.replication.v1.replication_pb2 import ReplicateRequest, ReplicateResponse
from tests.simulation.network import Network, Socket
from tests.simulation.streams import Data, Opened, Reset, Status

_REPLICATE = "/ditto.replication.v1.ReplicationService/Replicate"
_PUBLISH = "/ditto.messaging.v1.MessagingService/PublishStream"


class Listener(Protocol):
    """Machines are named by host."""

    def slave_said(self, slave: str, master: str, said: ReplicateRequest) -> None: ...

    def master_said(self, master: str, slave: str, said: ReplicateResponse) -> None: ...

    def frame_answered(self, answer: PublishStreamResponse) -> None: ...


class Wiretap:
    """Follows every such stream from its opening on."""

    def __init__(self, network: Network, listener: Listener) -> None:
        self._listener = listener
        self._streams: set[tuple[int, int]] = set()
        self._publishing: set[tuple[int, int]] = set()
        network.tap = self._delivered

    def _delivered(self, sender: Socket, payload: object) -> None:
        if not isinstance(payload, tuple):
            return
        number, frame = payload
        match frame:
            case Opened(method) if method == _REPLICATE:
                self._streams.add((sender.number, number))
            case Opened(method) if method == _PUBLISH:
                self._publishing.add((sender.number, number))
            case Data(content) if (sender.peer.number, number) in self._publishing:
                self._listener.frame_answered(PublishStreamResponse.FromString(content))
            case Data(content) if (sender.number, number) in self._streams:
                self._listener.slave_said(sender.host, sender.peer_host, ReplicateRequest.FromString(content))
            case Data(content) if (sender.peer.number, number) in self._streams:
                self._listener.master_said(sender.host, sender.peer_host, ReplicateResponse.FromString(content))
            case Reset():
                self._forget((sender.number, number))
            case Status():
                self._forget((sender.peer.number, number))

    def _forget(self, stream: tuple[int, int]) -> None:
        self._streams.discard(stream)
        self._publishing.discard(stream)
