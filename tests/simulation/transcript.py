"""What happened, line by line with virtual times, and one hash over all of it: equal hashes mean equal runs."""

import hashlib
from collections.abc import Callable


class Transcript:
    """Collects the story of one run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._digest = hashlib.sha256()
        self.lines: list[str] = []

    def note(self, who: str, what: str) -> None:
        """Add a line to the story."""
        line = f"{self._now():12.6f}  {who:<10} {what}"
        self.lines.append(line)
        self._digest.update(line.encode())

    def trace(self, what: str, content: bytes = b"") -> None:
        """Count something in the hash that is too small for a line."""
        self._digest.update(f"{self._now():.6f}{what}".encode())
        self._digest.update(content)

    def hash(self) -> str:
        """Digest of everything so far, in hex."""
        return self._digest.hexdigest()
