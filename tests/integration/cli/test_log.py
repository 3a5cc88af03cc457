"""`dittomq log …` on the stores of a master and a slave that are at work."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.cli.conftest import Bench
from tests.support.command_line import Ran

pytestmark = pytest.mark.tier("nightly")

MESSAGES = 20_000


@pytest.mark.parametrize("node", ["a/0", "a/1"])
def test_the_store_of_a_running_broker_is_read_while_it_takes_messages(bench: Bench, node: str) -> None:
    store = str(bench.cluster.data_dir(node))
    lines = "".join(f'{{"id":"{node}-{number}"}}\n' for number in range(MESSAGES)).encode()
    ran: dict[str, list[Ran]] = {"verify": [], "stats": [], "dump": [], "digest": []}

    with ThreadPoolExecutor(1) as threads:
        published = threads.submit(bench.command.run, "publish", "orders", "-", "--timeout", "60s", stdin=lines)
        while True:
            at_work = not published.done()
            for command, results in ran.items():
                output = ["-o", "at-work.dmd"] if command == "digest" else ["--json"]
                results.append(bench.command.run("log", command, store, *output))
            if not at_work:
                break

    assert published.result().code == 0, published.result().err
    for command, results in ran.items():
        assert [(each.code, each.err) for each in results] == [(0, "")] * len(results), command
    counts = [json.loads(each.out)["records"] for each in ran["verify"]]
    assert counts == sorted(counts)
    assert json.loads(ran["verify"][-1].out)["whole"]
