"""Write docs/configuration.md: every key of every service with its default, its limits and its sentence. Run by `make docs`."""

import typing
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from dittomq.broker.config import BrokerConfig
from dittomq.settings import Configuration, Loaded, settings_of
from dittomq.settings.schema import Key, bare_kind, tables_of
from services.nameserver.config import NameserverConfig

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "configuration.md"

INTRODUCTION: Final = """# Configuration

Made from the configuration classes by `make docs`; a test demands that it is up to date. One frozen value for each
service, printed at its start.

- **Where a value comes from**, the first that has it: `--set replication.ack_timeout_ms=5000`, the variable
  `DITTOMQ_REPLICATION__ACK_TIMEOUT_MS`, the file of `--config`, the default.
- **An unknown key or `DITTOMQ_` variable stops the start** and names the nearest known one. So does a value outside
  its limits, and a rule between keys that does not hold. The exit code is 64, nothing is started. Left alone are what
  the command line reads: `DITTOMQ_CONFIG`, `DITTOMQ_DEBUG`, `DITTOMQ_NAMESERVER`, `DITTOMQ_CA_FILE` and its like.
- The file is TOML. A name carries its unit: `_ms` milliseconds, `_bytes` bytes.
- `--print-config` prints what is in force as TOML that loads again, with the origin of each value. `--check-config`
  does the same and is the command for a deployment: it exits with 0 or 64. `GetBroker` answers with the running one.
- Nothing is reloaded but the files of `[tls]` and `[access]`: a change needs a restart.
- **Exit codes of a service**: 0 after a clean stop; 1 it could not start; 64 flags or configuration; 128 something
  broke, and its log says what.

```console
$ dittomq serve nameserver --set registry.broker_expiry_ms=60000 --print-config
…
[registry]
broker_expiry_ms = 60_000               # --set                a broker that is silent for so long is forgotten
scan_period_ms = 1_000                  # default              how often silent brokers are looked for
…

$ dittomq serve nameserver --set registry.expiry_ms=60000 --check-config
dittomq serve nameserver: --set registry.expiry_ms=60000: unknown key "registry.expiry_ms"; did you mean "registry.broker_expiry_ms"?
```
"""

_BROKER: Final = """`dittomq serve broker`, or `serve master` and `serve slave`. All read the same file, for an election makes a slave
the master; every node of a group has the same `[replication]`. `serve broker` begins as what the node is: a slave where the group has a
record, and where it has none the master if its `broker_id` is 0. A slave needs `node.nameservers` or `replication.master_address` to find
its master."""

_SERVICES: Final[Mapping[str, tuple[type[Configuration], str]]] = {
    "nameserver": (
        NameserverConfig,
        "`dittomq serve nameserver`. It keeps little on disk: operators' values and, if it is the coordination store, the group records.",
    ),
    "broker": (BrokerConfig, _BROKER),
}


def document() -> str:
    """The whole page."""
    lines = [INTRODUCTION, *(line for name in _SERVICES for line in _service(name))]
    return "\n".join(lines).rstrip() + "\n"


def _service(name: str) -> Iterator[str]:
    config_class, words = _SERVICES[name]
    loaded = Loaded(config_class(), defaultdict(lambda: "default"))
    values = {setting.key: setting.value for setting in settings_of(loaded)}
    yield from (f"## {name.capitalize()}", "", words, "")
    for table in tables_of(config_class).values():
        yield from (f"### {name}: `[{table.name}]`", "")
        if table.keys is None:
            yield from (f"{_sentence(table.sentence)} Names are free; empty by default.", "")
            continue
        yield from ("| key | default | limits | |", "|---|---|---|---|")
        yield from (f"| `{key.name}` | `{values[key.path]}` | {_limits(key)} | {_sentence(key.sentence)} |" for key in table.keys.values())
        yield ""


def _limits(key: Key) -> str:
    kind = bare_kind(key.kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{each.value}`" for each in kind)
    metas = [meta for meta in typing.get_args(key.kind) if isinstance(meta, msgspec.Meta)]
    least, most = (_last(metas, name) for name in ("ge", "le"))
    match least, most:
        case None, None:
            return _pattern(_last(metas, "pattern"))
        case _, None:
            return f"≥ {least:,}"
        case None, _:
            return f"≤ {most:,}"
        case _:
            return f"{least:,} to {most:,}"


def _last(metas: list[msgspec.Meta], name: str) -> Any:  # a number or a text, as declared
    return next((found for meta in reversed(metas) if (found := getattr(meta, name)) is not None), None)


def _pattern(pattern: str | None) -> str:
    return "" if pattern is None else f"`{pattern}`".replace("|", "\\|")


def _sentence(text: str) -> str:
    words = text.replace("|", "\\|")
    return words[:1].upper() + words[1:] + "." if words else ""


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
