"""`python -m dittomq.testing.watchman FOLDER`: waits for the end of its stdin, then stops what still runs of the folder's cluster."""

import sys
from pathlib import Path

from dittomq.testing.cluster import LocalCluster

if __name__ == "__main__":
    sys.stdin.buffer.read()
    LocalCluster(Path(sys.argv[1])).stop(grace_s=5.0)
