"""The benchmark runs end to end and leaves nothing behind. What it measures is judged by people, never here."""

import json
import subprocess
import sys
from pathlib import Path

from dittomq.testing.processes import checkout_root


def test_a_quick_benchmark_prints_every_ratio_and_leaves_no_file(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--json", "--dir", str(tmp_path)],
        cwd=checkout_root(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout)["figures"]
    assert {figure["goal"] for figure in figures} == {"≥ 0.4", "≥ 0.5", "≤ 2", "-"}
    assert all(0 < figure["ratio"]["min"] <= figure["ratio"]["median"] <= figure["ratio"]["max"] for figure in figures)
    assert list(tmp_path.iterdir()) == []
