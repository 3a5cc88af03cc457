"""Hears what masters and slaves tell each other, at the moment it is delivered: the bytes of the wire, decoded."""

from typing import Protocol

from dittomq._pb.ditto.replication.v1.replication_pb2 import ReplicateRequest, ReplicateResponse
from tests.simulation.network import Network, Socket
from tests.simulation.streams import Data, Opened, Reset, Status

_REPLICATE = "/ditto.replication.v1.ReplicationService/Replicate"


class Listener(Protocol):
    """Machines are named by host."""

    def slave_said(self, slave: str, master: str, said: ReplicateRequest) -> None: ...

    def master_said(self, master: str, slave: str, said: ReplicateResponse) -> None: ...


class Wiretap:
    """Follows every replication stream from its opening on."""

    def __init__(self, network: Network, listener: Listener) -> None:
        self._listener = listener
        self._streams: set[tuple[int, int]] = set()
        network.tap = self._delivered

    def _delivered(self, sender: Socket, payload: object) -> None:
        if not isinstance(payload, tuple):
            return
        number, frame = payload
        match frame:
            case Opened(method) if method == _REPLICATE:
                self._streams.add((sender.number, number))
            case Data(content) if (sender.number, number) in self._streams:
                self._listener.slave_said(sender.host, sender.peer_host, ReplicateRequest.FromString(content))
            case Data(content) if (sender.peer.number, number) in self._streams:
                self._listener.master_said(sender.host, sender.peer_host, ReplicateResponse.FromString(content))
            case Reset():
                self._streams.discard((sender.number, number))
            case Status():
                self._streams.discard((sender.peer.number, number))
