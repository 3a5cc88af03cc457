"""`python -m tests.fuzz.fuzz_rpcs FOLDER -atheris_runs=5000 -seed=7`: a fuzzer calls a master and a nameserver in this process.

It is guided by which code of theirs a call reaches. It ends with 0 when all calls were answered as they should be.
"""

import os
import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped]

from dittomq.rpc.polling import wait_with_fewer_threads

wait_with_fewer_threads(os.environ)

with atheris.instrument_imports(include=["dittomq", "services"]):
    from tests.fuzz.mutations import with_more
    from tests.fuzz.rpc_calls import Calls
    from tests.fuzz.served_node import ServedNode


def main() -> None:
    """Serve, and call until all runs are done; atheris ends the process."""
    node = ServedNode(Path(sys.argv.pop(1)))
    node.start()
    calls = Calls(node)

    def call_once(data: bytes) -> None:
        calls.call(atheris.FuzzedDataProvider(with_more(data)))

    atheris.Setup(sys.argv, call_once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
