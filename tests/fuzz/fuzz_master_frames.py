"""`python -m tests.fuzz.fuzz_master_frames -atheris_runs=20000 -seed=7`: a slave that follows a master whose frames a fuzzer makes up.

Each run is a slave of its own, in virtual time and on a disk in memory. It may refuse what it hears, and dial again, and nothing else.
"""

import asyncio
import contextlib
import logging
import random
import sys

import atheris  # type: ignore[import-untyped]
import structlog

with atheris.instrument_imports(include=["dittomq", "services"]):
    from tests.unit.services.slave.following_slave import MASTERS, at, chunk, entry, following, handshake, next_border, stream

from google.protobuf.message import DecodeError

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.errors import DittoError
from dittomq.offsets import Epoch
from dittomq.replication.events import Heartbeat, LeafProbe, RangeDigest
from dittomq.routes import DataVersion
from dittomq.wire import replication as wire
from tests.fuzz.mutations import Choices, request_bytes, with_more
from tests.support.metadata_node import run
from tests.support.stores import Machine

_MOST_FRAMES = 6
_ONE = next_border(0)
_TWO = next_border(_ONE)
_MESSAGES = (
    stream((entry(1, 0),), 0),
    chunk(1, 0, _ONE, confirmed=0),
    chunk(1, _ONE, _TWO, confirmed=_ONE),
    Heartbeat(Epoch(1), at(_TWO), at(_ONE), RangeDigest(at(0), at(_ONE), bytes(16)), DataVersion(1, 1_000, 1)),
    LeafProbe(at(0), at(_ONE)),
)
_EXAMPLES = [pb.ReplicateResponse.FromString(wire.master_frame(message, 0)) for message in _MESSAGES]


def follow_once(data: bytes) -> None:
    """A slave hears some frames, and lives five seconds longer. Raises what is no refusal."""
    choices = atheris.FuzzedDataProvider(with_more(data))
    try:
        run(_follow(choices))
    except* DittoError:
        pass  # it refuses


async def _follow(choices: Choices) -> None:
    async with following(Machine(random.Random(2))) as (master, _):
        await handshake(master)
        for number in range(choices.ConsumeIntInRange(1, _MOST_FRAMES)):
            is_whole = number == 0 and choices.ConsumeIntInRange(0, 3)
            example = _EXAMPLES[0 if is_whole else choices.ConsumeIntInRange(0, len(_EXAMPLES) - 1)]
            frame = example.SerializeToString() if is_whole else request_bytes(example, choices)
            with contextlib.suppress(DecodeError):  # gRPC ends the stream
                master.say_frame(pb.ReplicateResponse.FromString(frame))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    assert MASTERS.end > _TWO
    atheris.Setup(sys.argv, follow_once)
    atheris.Fuzz()
