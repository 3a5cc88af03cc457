import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta

from dittomq.errors import ConfigError
from dittomq.settings import Loaded, configured, load, render, settings_of
from dittomq.settings.layers import CLIENT_VARIABLES
from tests.support.tree import ROOT

Milliseconds = Annotated[int, Meta(ge=1, le=1_000_000)]


class Mode(StrEnum):
    SYNC = "SYNC"
    ASYNC = "ASYNC"


@dataclass(frozen=True, slots=True)
class NodeTable:
    broker: Annotated[str, Meta(description="name of the group")]
    nameservers: tuple[str, ...] = ()
    data_dir: Path = Path("/data")


@dataclass(frozen=True, slots=True)
class TimesTable:
    wait_ms: Annotated[Milliseconds, Meta(description="how long to wait")] = 5_000
    limit_ms: Milliseconds = 10_000
    buffer_bytes: int = 1 << 28
    mode: Mode = Mode.SYNC
    ratio: float = 0.5
    eager: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    node: NodeTable
    times: TimesTable = field(default_factory=TimesTable)
    advertise: Annotated[Mapping[str, str], Meta(description="addresses by network")] = field(default_factory=dict)

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.times.wait_ms > self.times.limit_ms:
            yield "times.wait_ms", f"is more than times.limit_ms ({self.times.limit_ms:,}); lower it"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.toml"
    path.write_text('# first line\n[node]\nbroker = "a"\n\n[times]\n  wait_ms = 7_000 # here\n[advertise]\n"external" = "mq:1"\n')
    return path


def loaded(file: Path | None = None, environment: Mapping[str, str] | None = None, *overrides: str) -> Loaded[Config]:
    return load(Config, file, environment or {}, ["node.broker=a", *overrides] if file is None else overrides)


def refusal(file: Path | None = None, environment: Mapping[str, str] | None = None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        loaded(file, environment, *overrides)
    return str(refused.value)


def test_a_default_is_lost_to_the_file_the_file_to_a_variable_and_that_to_a_flag(file: Path) -> None:
    variable = {"DITTOMQ_TIMES__WAIT_MS": "8000"}

    assert loaded().value.times.wait_ms == 5_000
    assert loaded(file).value.times.wait_ms == 7_000
    assert loaded(file, variable).value.times.wait_ms == 8_000
    assert loaded(file, variable, "times.wait_ms=9000").value.times.wait_ms == 9_000


def test_every_value_knows_where_it_came_from(file: Path) -> None:
    origins = loaded(file, {"DITTOMQ_TIMES__EAGER": "true"}, "times.ratio=0.25").origins

    assert origins == {
        "node.broker": f"{file}:3",
        "node.nameservers": "default",
        "node.data_dir": "default",
        "times.wait_ms": f"{file}:6",
        "times.limit_ms": "default",
        "times.buffer_bytes": "default",
        "times.mode": "default",
        "times.ratio": "--set",
        "times.eager": "DITTOMQ_TIMES__EAGER",
        "advertise.external": f"{file}:8",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("times.wait_ms=6_000", 6_000),
        ("times.wait_ms = 6000", 6_000),
        ("times.mode=ASYNC", Mode.ASYNC),
        ('times.mode="ASYNC"', Mode.ASYNC),
        ("times.ratio=1", 1.0),
        ("times.eager=true", True),
        ("node.broker=007", "007"),
        ("node.broker=a=b", "a=b"),
        ("node.data_dir=/var/x", Path("/var/x")),
        ("node.nameservers=a:1, b:2", ("a:1", "b:2")),
        ('node.nameservers=["a:1","b:2"]', ("a:1", "b:2")),
        ("advertise.default=mq.example.org:31911", "mq.example.org:31911"),
    ],
)
def test_text_becomes_the_type_of_its_key(text: str, value: object) -> None:
    table, _, key = text.partition("=")[0].strip().partition(".")

    held = getattr(loaded(None, None, text).value, table)

    assert (held[key] if isinstance(held, dict) else getattr(held, key)) == value


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["times.wait_mss=1"], '--set times.wait_mss=1: unknown key "times.wait_mss"; did you mean "times.wait_ms"?'),
        (["tmes.wait_ms=1"], '--set tmes.wait_ms=1: unknown key "tmes.wait_ms"; did you mean "times.wait_ms"?'),
        (["times.wait_ms=soon"], "--set: times.wait_ms: expected int, got soon"),
        (["times.wait_ms=0"], "--set: times.wait_ms: expected int >= 1, got 0"),
        (["times.eager=maybe"], "--set: times.eager: expected bool, got maybe"),
        (["times.mode=OFF"], "--set: times.mode: expected SYNC or ASYNC, got OFF"),
        (["times.wait_ms=\udcff"], "--set: times.wait_ms: is no text in UTF-8"),
        (["times.mode=\udcff"], "--set: times.mode: is no text in UTF-8"),
        (["node.broker=\udcff"], "--set: node.broker: is no text in UTF-8"),
        (["wait"], "--set wait: write table.key=value"),
        (["times.wait_ms=20000"], "--set: times.wait_ms: is more than times.limit_ms (10,000); lower it"),
        (["times.limit_ms=10"], "times.wait_ms: is more than times.limit_ms (10); lower it"),
    ],
)
def test_a_bad_flag_is_refused_in_one_sentence(overrides: list[str], sentence: str) -> None:
    assert refusal(None, None, *overrides) == sentence


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("DITTOMQ_TIMES__WAIT_MSS", 'DITTOMQ_TIMES__WAIT_MSS: unknown variable; did you mean "DITTOMQ_TIMES__WAIT_MS"?'),
        ("DITTOMQ_WAIT_MS", 'DITTOMQ_WAIT_MS: unknown variable; did you mean "DITTOMQ_TIMES__WAIT_MS"?'),
        ("DITTOMQ_TIMES__WAIT_MS", "DITTOMQ_TIMES__WAIT_MS: times.wait_ms: expected int, got x"),
    ],
)
def test_a_bad_variable_is_refused_in_one_sentence(variable: str, sentence: str) -> None:
    assert refusal(None, {variable: "x"}) == sentence


def test_variables_of_the_client_and_of_others_are_left_alone() -> None:
    environment = {"DITTOMQ_CONFIG": "/c.toml", "DITTOMQ_DEBUG": "1", "DITTOMQ_NAMESERVER": "h:1", "PATH": "/bin"}

    assert loaded(None, environment).value.node.broker == "a"


def test_exactly_the_variables_that_client_and_command_line_read_are_theirs() -> None:
    sources = [path.read_text() for part in ("client", "cli") for path in (ROOT / "dittomq" / part).rglob("*.py")]

    assert {name for source in sources for name in re.findall(r"\bDITTOMQ_[A-Z]+(?:_[A-Z]+)*\b", source)} == CLIENT_VARIABLES


def test_a_free_table_takes_names_from_variables() -> None:
    assert loaded(None, {"DITTOMQ_ADVERTISE__DEFAULT": "a-0:10911"}).value.advertise == {"default": "a-0:10911"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[node]\nbroker = "a"\n[tmes]\nwait_ms = 1\n', '{file}:3: unknown table "tmes"; did you mean "times"?'),
        ('[node]\nbroker = "a"\nbrokr = "a"\n', '{file}:3: unknown key "node.brokr"; did you mean "node.broker"?'),
        ('[node]\nbroker = "a"\n[times]\nwait_ms = "5000"\n', "{file}:4: times.wait_ms: expected int, got '5000'"),
        ('[node]\nbroker = "a"\nnameservers = [1]\n', "{file}:3: node.nameservers: expected str, got [1]"),
        ('node.broker = "a"\ntimes.eager = 1\n', "{file}:2: times.eager: expected bool, got 1"),
        ("node = 5\n", '{file}:1: "node" is a table: write [node] and its keys below'),
        ("[times]\n", "node.broker: is not set; write it in the file as broker = … under [node], or set DITTOMQ_NODE__BROKER"),
        ("[node\n", "{file}: is not TOML: Expected ']' at the end of a table declaration (at line 1, column 6)"),
        ('[node]\nbroker = "a"\n[advertise]\ndefault = 5\n', "{file}:4: advertise.default: expected str, got 5"),
    ],
)
def test_a_bad_file_is_refused_by_file_and_line(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "b.toml"
    file.write_text(text)

    assert refusal(file) == sentence.format(file=file)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_bytes(b"\xff\xfe")

    assert "is not TOML" in refusal(file)


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000])
def test_a_value_that_no_program_reads_is_refused_in_a_file_and_in_a_flag(tmp_path: Path, value: str) -> None:
    file = tmp_path / "b.toml"
    file.write_text(f"[times]\nwait_ms = {value}\n")

    assert "is not TOML" in refusal(file)
    assert refusal(None, None, f"times.wait_ms={value}").startswith("--set: times.wait_ms: ")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.toml") == f"{tmp_path / 'none.toml'}: cannot be read: No such file or directory"


def test_a_rendered_configuration_loads_again_as_itself(file: Path, tmp_path: Path) -> None:
    first = loaded(file, None, 'node.broker=quote " slash \\ tab \t ü', "node.nameservers=a:1,b:2", "times.mode=ASYNC")
    again = tmp_path / "again.toml"
    again.write_text(render(first), encoding="utf-8")

    assert load(Config, again, {}, []).value == first.value
    assert tomllib.loads(render(first))["times"]["buffer_bytes"] == 1 << 28


def test_a_rendered_line_has_the_origin_the_size_and_the_sentence(file: Path) -> None:
    lines = render(loaded(file)).splitlines()

    assert f"wait_ms = 7_000                         # {file}:6 how long to wait" in lines
    assert "buffer_bytes = 268_435_456              # default, 256 MiB" in lines


def test_settings_are_listed_with_their_origins() -> None:
    rows = settings_of(loaded(None, {"DITTOMQ_ADVERTISE__DEFAULT": "a-0:10911"}))

    assert rows[0] == ("node.broker", '"a"', "--set")
    assert rows[-1] == ("advertise.default", '"a-0:10911"', "DITTOMQ_ADVERTISE__DEFAULT")


@pytest.mark.parametrize("flag", ["--print-config", "--check-config"])
def test_printing_and_checking_end_with_success_and_valid_toml(flag: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        configured(Config, "service", ["--config", str(file), flag], {})

    assert ended.value.code == 0
    assert tomllib.loads(capsys.readouterr().out)["node"]["broker"] == "a"


def test_a_wrong_flag_ends_with_64(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        configured(Config, "service", ["--conf", "x"], {})

    assert ended.value.code == 64
    assert capsys.readouterr().err.count("\n") == 1
