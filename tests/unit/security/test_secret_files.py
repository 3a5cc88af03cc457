"""Files that hold a secret."""

from pathlib import Path

import pytest

from dittomq.errors import ConfigError
from dittomq.security.secret_files import read_secret

LIMIT = 1024 * 1024


def test_a_secret_file_beyond_its_limit_is_refused_unread(tmp_path: Path) -> None:
    """Also one that takes no room and has no end."""
    path = tmp_path / "token"
    path.write_bytes(b"x" * LIMIT)
    assert len(read_secret("access.own_token_file", str(path))) == LIMIT

    path.write_bytes(b"x" * (LIMIT + 1))
    for large in (path, Path("/dev/zero")):
        with pytest.raises(ConfigError, match="has more than 1,048,576 bytes") as refused:
            read_secret("access.own_token_file", str(large))
        assert "xxxx" not in str(refused.value)
