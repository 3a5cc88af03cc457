"""What a measure found: a ratio for each pair of neighbouring runs, product and floor, and what they were made of."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the result. `ours` and `floor` hold one value for each pair, in `unit`; `at_least` None: the goal is `at_most`.

    Without a floor the goal is about our own values, in `unit`: so much memory, so many files.
    """

    name: str
    unit: str
    ours: Sequence[float]
    floor: Sequence[float] = ()
    at_least: float | None = None
    at_most: float | None = None

    @property
    def values(self) -> list[float]:
        """What the goal is about: ours in floors, pair by pair, or ours alone."""
        return [ours / floor for ours, floor in zip(self.ours, self.floor, strict=True)] if self.floor else list(self.ours)

    @property
    def median(self) -> float:
        """The value that is held against the goal."""
        return statistics.median(self.values)

    @property
    def goal(self) -> str:
        """In words."""
        unit = "" if self.floor else f" {self.unit}"
        if self.at_least is not None:
            return f"≥ {self.at_least:g}{unit}"
        return f"≤ {self.at_most:g}{unit}" if self.at_most is not None else "-"

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None without one."""
        if self.at_least is not None:
            return self.median >= self.at_least
        return self.median <= self.at_most if self.at_most is not None else None

    def document(self) -> dict[str, object]:
        """For a program. Under "ratio", or under "value" without a floor, is what the goal is about."""
        values = self.values
        return {
            "name": self.name,
            "ratio" if self.floor else "value": {"min": min(values), "median": self.median, "max": max(values), "each": values},
            "goal": self.goal,
            "met": self.met,
            "unit": self.unit,
            "ours": list(self.ours),
            "floor": list(self.floor),
        }

    def row(self) -> tuple[str, ...]:
        """For a person."""
        verdict = {True: "yes", False: "no", None: ""}[self.met]
        range_of = (min(self.values), self.median, max(self.values)) if self.floor else ()
        figures = [f"{value:.2f}" for value in range_of] or ["", "", ""]
        floor = f"{statistics.median(self.floor):,.2f} {self.unit}" if self.floor else ""
        return (self.name, *figures, self.goal, verdict, f"{statistics.median(self.ours):,.2f} {self.unit}", floor)


HEADINGS = ("measure", "min", "median", "max", "goal", "met", "dittomq", "floor")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
