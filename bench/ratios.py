"""What a measure found: a ratio for each pair of neighbouring runs, product and floor, and what they were made of."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result. `ours` and `floor` hold one value for each pair, in `unit`; `at_least` None: the goal is `at_most`."""

    name: str
    unit: str
    ours: Sequence[float]
    floor: Sequence[float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratios(self) -> list[float]:
        """Ours in floors, pair by pair."""
        return [ours / floor for ours, floor in zip(self.ours, self.floor, strict=True)]

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)

    @property
    def goal(self) -> str:
        """In words."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most is not None else "-"

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None without one."""
        if self.at_least is not None:
            return self.ratio >= self.at_least
        return self.ratio <= self.at_most if self.at_most is not None else None

    def document(self) -> dict[str, object]:
        """For a program."""
        return {
            "name": self.name,
            "ratio": {"min": min(self.ratios), "median": self.ratio, "max": max(self.ratios), "each": self.ratios},
            "goal": self.goal,
            "met": self.met,
            "unit": self.unit,
            "ours": list(self.ours),
            "floor": list(self.floor),
        }

    def row(self) -> tuple[str, ...]:
        """For a person."""
        low, high = min(self.ratios), max(self.ratios)
        verdict = {True: "yes", False: "no", None: ""}[self.met]
        ours, floor = statistics.median(self.ours), statistics.median(self.floor)
        figures = (f"{low:.2f}", f"{self.ratio:.2f}", f"{high:.2f}", self.goal, verdict)
        return (self.name, *figures, f"{ours:,.2f} {self.unit}", f"{floor:,.2f} {self.unit}")


HEADINGS = ("measure", "min", "median", "max", "goal", "met", "dittomq", "floor")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
