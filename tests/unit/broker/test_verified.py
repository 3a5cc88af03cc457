"""What a slave wrote down of how far it is verified is believed only as it was written."""

from pathlib import Path

from dittomq.broker.verified import VerifiedUpTo, load_verified, save_verified
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.offsets import PhysicalOffset

PROVEN = VerifiedUpTo(PhysicalOffset(100_000), "8d3b7c0a")


def test_a_verified_end_is_the_one_that_was_written_or_none_whatever_bit_rots(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path)
    assert save_verified(storage, PROVEN) or storage.free_bytes() < 1 << 20
    kept = tmp_path / "dittomq" / "verified-equal"
    written = kept.read_bytes()

    for at in range(len(written) * 8):
        rotten = bytearray(written)
        rotten[at // 8] ^= 1 << at % 8
        kept.write_bytes(rotten)
        assert load_verified(storage) in {PROVEN, VerifiedUpTo()}, f"bit {at}"
    for length in range(len(written)):
        kept.write_bytes(written[:length])
        assert load_verified(storage) == VerifiedUpTo(), f"{length} bytes"

    kept.write_bytes(written)
    assert load_verified(storage) == PROVEN


def test_a_verified_end_of_a_version_that_did_not_seal_it_is_verified_again(tmp_path: Path) -> None:
    (tmp_path / "dittomq").mkdir()
    (tmp_path / "dittomq" / "verified-equal").write_bytes(b"100000 8d3b7c0a")

    assert load_verified(OsStorage(tmp_path)) == VerifiedUpTo()
