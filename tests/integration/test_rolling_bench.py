"""The measure of rolls runs and leaves nothing behind. What it measures is judged by people, never here."""

from pathlib import Path

from bench.store import rolling


def test_a_quick_measure_of_rolls_has_figures_of_both_kinds_and_leaves_no_file(tmp_path: Path) -> None:
    figures = rolling.measure(tmp_path, quick=True)

    assert len({figure.name for figure in figures}) == len(figures) == 6
    assert all(min(figure.ours) > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []
