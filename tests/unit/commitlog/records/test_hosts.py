"""Which host a node's records name, and that ours are known by it."""

import struct
from collections.abc import Mapping
from ipaddress import ip_address

import pytest

from dittomq.broker.registration import record_host
from dittomq.commitlog.records.decoding import decode, message_of
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import MARK_BYTES, Host, scan, whole_end
from dittomq.commitlog.records.rocketmq_records import by_another_hand
from dittomq.message import Draft

IPV4 = Host(ip_address("10.0.0.7").packed, 10_911)
IPV6 = Host(ip_address("2001:db8::7").packed, 10_911)
HOSTS = pytest.mark.parametrize("host", [IPV4, IPV6], ids=["IPv4", "IPv6"])
POSITION = 4_096
SEGMENT_END = 1 << 20


def record(host: Host, body: bytes = b"body") -> bytes:
    return encode_draft(
        Draft("orders", 3, -7, 1_111, body, b"PID\x01p\x02SEQ\x015\x02KEYS\x01k\x02TAGS\x01t\x02", 116), 42, POSITION, 2_222, host=host
    )


@pytest.mark.parametrize(
    ("advertised", "listening", "expected"),
    [
        ({"default": "10.1.2.3:7000", "internet": "203.0.113.9:7001"}, "0.0.0.0:10911", ("10.1.2.3", 7_000)),
        ({"default": "[2001:db8::7]:7000"}, "0.0.0.0:10911", ("2001:db8::7", 7_000)),
        ({"default": "[::ffff:10.1.2.3]:7000"}, "0.0.0.0:10911", ("10.1.2.3", 7_000)),
        ({"default": "a-0.brokers.mq.svc:7000"}, "0.0.0.0:10911", ("0.0.0.0", 7_000)),
        ({"internet": "203.0.113.9:7001"}, "192.168.1.2:10911", ("192.168.1.2", 10_911)),
        ({}, "[fe80::1%eth0]:10911", ("fe80::1", 10_911)),
        ({}, "0.0.0.0:10911", ("127.0.0.1", 10_911)),
        ({}, "127.0.0.1:0", ("127.0.0.1", 0)),
        ({}, "not an address", ("127.0.0.1", 0)),
    ],
)
def test_records_name_the_address_on_the_default_network(advertised: Mapping[str, str], listening: str, expected: tuple[str, int]) -> None:
    host = record_host(advertised, listening)

    assert (str(ip_address(host.address)), host.port) == expected


@HOSTS
def test_a_record_names_one_host_and_is_read_back_whole(host: Host) -> None:
    found = decode(record(host), POSITION)
    message = message_of(record(host))

    assert (found.born_host, found.store_host) == (host, host)
    assert (found.born_ms, found.store_ms, found.body, found.topic) == (1_111, 2_222, b"body", "orders")
    assert (message.body, message.queue_offset, message.keys, message.tag, message.flag) == (b"body", 42, ("k",), "t", -7)


@HOSTS
def test_a_scan_takes_records_with_hosts_of_either_kind(host: Host) -> None:
    data = record(host)

    [entry] = scan(data, POSITION, SEGMENT_END).entries

    assert (entry.start, entry.end, entry.queue_offset, entry.tags_code) == (POSITION, POSITION + len(data), 42, 116)
    assert (entry.producer_id, entry.sequence, entry.store_ms) == ("p", 5, 2_222)
    assert whole_end(data, POSITION, SEGMENT_END) == (entry.end, "")
    assert scan(data, POSITION, POSITION + len(data) + MARK_BYTES).problem == ""
    for at in range(len(data)):
        assert scan(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], POSITION, SEGMENT_END).entries == []


@HOSTS
def test_only_a_record_that_names_one_host_and_nothing_strange_is_ours(host: Host) -> None:
    ours = record(host)
    hosts_end = 48 + 2 * (len(host.address) + 4) + 8
    other_port = ours[: hosts_end - 4] + struct.pack(">i", 51_234) + ours[hosts_end:]

    assert not by_another_hand(ours)
    assert by_another_hand(other_port)
    assert by_another_hand(ours[:39] + bytes([ours[39] | 0x1]) + ours[40:])
    assert by_another_hand(ours[:39] + bytes([ours[39] ^ 0x10]) + ours[40:])
    assert by_another_hand(ours[: hosts_end + 3] + b"\1" + ours[hosts_end + 4 :])
