"""Slaves that their master cannot take in, for what it may lack, and what follows from how many there are. Pure."""

from dittomq.offsets import PhysicalOffset


class Parted:
    """Those of one term. What none of `witnesses` slaves has was never confirmed; 0: that cannot be said of this group."""

    def __init__(self, witnesses: int) -> None:
        self._witnesses = witnesses
        self._common: dict[str, PhysicalOffset] = {}

    def forget(self, node: str) -> None:
        """That slave is taken in: it may hold more of this log from now on."""
        self._common.pop(node, None)

    def at(self, node: str, common: PhysicalOffset) -> PhysicalOffset | None:
        """That slave's log is the same up to `common`: up to where anything of this log may be confirmed, None while that is not known."""
        self._common[node] = common
        return max(self._common.values()) if 0 < self._witnesses <= len(self._common) else None
