"""Moments on the wire. A store may hold records of times that no calendar has, and says them as they are."""

from google.protobuf.timestamp_pb2 import Timestamp


def timestamp_to_pb(ms: int) -> Timestamp:
    return Timestamp(seconds=ms // 1_000, nanos=ms % 1_000 * 1_000_000)


def ms_from_pb(moment: Timestamp) -> int:
    return moment.seconds * 1_000 + moment.nanos // 1_000_000
