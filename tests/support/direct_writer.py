"""Somebody who publishes at one node only, whoever leads: what a fenced master acknowledges, it is told."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import cast

import grpc

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.errors import DittoError, NotStored, OutcomeHandle, OutcomeUnknown, Refused
from dittomq.message import Receipt
from dittomq.rpc import status
from dittomq.wire import messaging as wire
from tests.support.event_log import Told
from tests.support.traffic import note
from tests.support.waiting import PATIENCE_S

_PUBLISH = "/ditto.messaging.v1.MessagingService/Publish"
_WAIT_S = 0.5
_ANSWER_S = 10.0
_REST_S = 0.005

_numbers = itertools.count()


class DirectWriter:
    """Publishes one message after the other, at REPLICA_FLUSHED, into queue 0. `receipts` are of what was acknowledged."""

    def __init__(self, address: str, topic: str, told: Told) -> None:
        self.receipts: list[Receipt] = []
        self.refused = 0
        self._address = address
        self._topic = topic
        self._told = told
        self._stream = next(told.moments)
        self._over = threading.Event()

    @contextlib.contextmanager
    def writing(self) -> Iterator["DirectWriter"]:
        """It writes while the block runs."""
        thread = threading.Thread(target=self._run, name=f"writes at {self._address}", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{self._address} has never answered"

    def _run(self) -> None:
        with grpc.insecure_channel(self._address) as channel:
            call = channel.unary_unary(_PUBLISH, pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString)
            while not self._over.wait(_REST_S):
                self._publish(call)

    def _publish(self, call: Callable[..., pb.PublishResponse]) -> None:
        body = b"direct %d" % next(_numbers)
        request = pb.PublishRequest(ack=pb.ACK_LEVEL_REPLICA_FLUSHED)
        request.timeout.FromTimedelta(timedelta(seconds=_WAIT_S))
        request.message.topic, request.message.body, request.message.queue = self._topic, body, 0
        sent = next(self._told.moments)
        outcome: Receipt | DittoError
        try:
            outcome = wire.receipt(call(request, timeout=_ANSWER_S).receipt)
            self.receipts.append(outcome)
        except grpc.RpcError as error:
            outcome = self._failure(error)
        note(self._told, body, outcome, stream=self._stream, sent=sent, at_once=True)

    def _failure(self, error: grpc.RpcError) -> DittoError:
        problem = status.decode(cast("grpc.aio.AioRpcError", error), self._address)
        if isinstance(problem, Refused):
            self.refused += 1
            return NotStored(self._topic, problem)
        return OutcomeUnknown(OutcomeHandle("", "", 0, self._topic, 0), str(problem))
