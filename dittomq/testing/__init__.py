"""A real cluster on this machine, for trying things out and for the tests of applications."""

from dittomq.testing.cluster import LocalCluster
from dittomq.testing.state import LocalNode, Shape

__all__ = ["LocalCluster", "LocalNode", "Shape"]
