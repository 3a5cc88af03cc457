"""What ends the demo early."""


class BrokenPromise(Exception):
    """Something that the demo proves did not hold."""


def demand(holds: object, what: str) -> None:
    """Go on only where it holds."""
    if not holds:
        raise BrokenPromise(what)
