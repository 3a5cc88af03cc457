"""What ends the demo early."""

from dataclasses import dataclass

from dittomq.errors import DittoError


@dataclass(eq=False)
class BrokenPromise(DittoError):
    """Something that the demo proves did not hold."""

    what: str

    def __str__(self) -> str:
        return f"FAIL: {self.what}"


def demand(holds: object, what: str) -> None:
    """Go on only where it holds."""
    if not holds:
        raise BrokenPromise(what)
