"""Examples in `--help`. A test runs every one of them."""


def example(*lines: str) -> str:
    """An epilog that shows command lines as they are typed."""
    # \b keeps the lines that follow it from being joined.
    return "\b\n" + "\n".join(f"$ dittomq {line}" for line in lines)
