"""A scan reads every record's producer as if it stood alone, whatever the record before it said."""

from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import Host, scan, sequence_of
from dittomq.message import Draft

SEGMENT = 1 << 20
IDENTITIES = [
    b"",
    b"PID\x01p\x02SEQ\x017\x02",
    b"PID\x01p\x02SEQ\x018\x02",
    b"PID\x01p\x02SEQ\x018\x02TAGS\x01t\x02",
    b"PID\x01p\x02SEQ\x01x\x02",
    b"PID\x01p\x02SEQ\x01\x02",
    b"PID\x01p\x02SEQ\x01" + b"9" * 20 + b"\x02",
    b"PID\x01pSEQ\x01\x02SEQ\x013\x02",
    b"PID\x01q\x02SEQ\x018\x02",
    b"PID\x01q\x02OTHER\x018\x02",
]


@given(st.lists(st.sampled_from(IDENTITIES), max_size=8))
def test_neighbours_do_not_change_what_is_read_of_a_producer(identities: list[bytes]) -> None:
    log = b""
    for at, identity in enumerate(identities):
        log += encode_draft(Draft("t", 0, 0, 1, b"body", identity, 0), at, len(log), 1, host=Host(bytes(4), 1))

    found = scan(log, 0, SEGMENT)

    assert (found.end, found.problem) == (len(log), "")
    assert [(entry.producer_id, entry.sequence) for entry in found.entries] == [sequence_of(identity) for identity in identities]
