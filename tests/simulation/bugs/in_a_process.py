"""A plugin of pytest: the whole process runs the product with the bug that BUG names in it, `-p tests.simulation.bugs.in_a_process`."""

import os
from typing import cast

from tests.simulation.bugs.patches import Patches
from tests.simulation.cluster import Cluster
from tests.simulation.mutants import MUTANTS

[_bug] = [mutant for mutant in MUTANTS if mutant.name == os.environ["BUG"]]
_bug.sabotage(Patches(), cast(Cluster, None))  # those that ask for it are about simulated disks
