"""Limits of every connection, the same on both sides."""

from dittomq.doors.transport import ChannelOptions

MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # a frame of 8 MiB, a page or a chunk fits with room
MAX_CONCURRENT_STREAMS = 10_000
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000

SIZE_OPTIONS: ChannelOptions = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)
KEEPALIVE_OPTIONS: ChannelOptions = (
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
