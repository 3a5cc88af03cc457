"""How processes of ours let gRPC wait for the network."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CHOICE = "-event_engine_client,-event_engine_listener"
# Prints what the environment says when gRPC is looked for.
WATCHED = """
import os, runpy, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print("grpc:", os.environ.get("GRPC_EXPERIMENTS"))
sys.meta_path.insert(0, Watch())
sys.argv = [sys.argv[1], *sys.argv[2:]]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
CHANNEL = """
import os
from dittomq.rpc.polling import wait_with_fewer_threads
wait_with_fewer_threads(os.environ)
import grpc
grpc.insecure_channel("localhost:1").close()
"""


def run(code: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=False)


@pytest.mark.tier("test")
@pytest.mark.parametrize("service", ["master", "slave", "nameserver"])
def test_a_service_has_chosen_before_grpc_looks(service: str) -> None:
    ran = run(WATCHED, f"services.{service}", "--print-config")

    assert f"grpc: {CHOICE}" in ran.stdout.splitlines(), ran.stderr


def test_the_environments_own_choice_is_kept() -> None:
    ran = run(WATCHED, "services.nameserver", "--print-config", GRPC_EXPERIMENTS="event_engine_client")

    assert "grpc: event_engine_client" in ran.stdout.splitlines(), ran.stderr


def test_grpc_knows_what_is_chosen() -> None:
    """A version that has dropped the choice says so on stderr, at each start of each process: then it is to go here too."""
    assert run(CHANNEL).stderr == ""
    assert "Unknown experiment" in run(CHANNEL, GRPC_EXPERIMENTS="-no_such_choice").stderr
