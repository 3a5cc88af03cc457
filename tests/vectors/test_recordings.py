"""The recorded stores are those that were recorded."""

import hashlib

from tests.support import vectors


def test_every_recorded_file_has_its_digest_and_none_is_missing() -> None:
    listed = dict(line.split("  ")[::-1] for line in (vectors.folder() / "SHA256SUMS").read_text().splitlines())

    found = {
        str(path.relative_to(vectors.folder())): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vectors.folder().rglob("*.*")
        if path.is_file() and path.name != "README.md"
    }

    assert found == listed
