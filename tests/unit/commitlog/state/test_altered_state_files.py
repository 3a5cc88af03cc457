"""A file of ours that is whole by its checksum and does not hold what we write, by whatever hand: the start goes on or says so."""

import random
import struct

import pytest

from dittomq.broker.store_owner import StoreOwner, check_cluster
from dittomq.commitlog.disk import state_file
from dittomq.errors import StoreOpenFailed
from tests.support.stores import Machine, filled

KINDS = {
    "identity": b"IDEN", "lineage": b"LINE", "watermark": b"WATR", "checkpoint": b"CHEK", "producers": b"PROD", "damaged": b"DAMG",
    "queue-minimums": b"QMIN", "dropped": b"DROP", "boot": b"BOOT", "cut-intent": b"CUTI", "swap": b"SWAP", "verified-equal": b"VEQU",
    "replica": b"REPL",
}  # fmt: skip
WRONG = [b"", b"x", b"null", b"[]", b"{}", b"[[1]]", b'[["orders"]]', b'{"end":"x"}', b"[" * 100_000, b"9" * 5_000, b"\xff", b"NaN"]

UNORDERED = b"[[2,0,5,900],[1,0,5,100]]"


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", KINDS)
def test_a_start_goes_on_without_it_or_refuses_the_store_and_names_the_file(name: str) -> None:
    for payload in [*WRONG, UNORDERED, struct.pack(">I", 2) + b"{}", struct.pack(">I", 1 << 31)]:
        machine = Machine(random.Random(1))
        store = filled(machine)
        end = store.end
        store.close(clean=True)
        put(machine, name, KINDS[name], payload)

        try:
            store = machine.open()
        except StoreOpenFailed as refusal:
            assert f"dittomq/{name} is damaged" in str(refusal)  # noqa: PT017 - either of both is right
            continue
        store.dispatch(store.end)
        assert store.end == end, payload[:20]
        assert len(store.read_queue("orders", 0, 0, 100, 1 << 20).messages) == 20, payload[:20]
        store.close(clean=True)


@pytest.mark.parametrize("payload", WRONG)
def test_a_node_does_not_guess_its_group(payload: bytes) -> None:
    machine = Machine(random.Random(1))
    filled(machine).close(clean=True)
    put(machine, "group", b"HOME", payload)

    with pytest.raises(StoreOpenFailed, match="dittomq/group is damaged"):
        check_cluster(machine.storage(), StoreOwner("c", "b"), "/data")


def put(machine: Machine, name: str, kind: bytes, payload: bytes) -> None:
    """Let the file hold this, under a right checksum."""
    file = machine.beside().open(f"dittomq/{name}", create=True)
    file.truncate(0)
    file.pwrite(state_file.seal(kind, payload), 0)
    file.fdatasync()
