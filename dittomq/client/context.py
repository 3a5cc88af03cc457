"""Clusters by name, in a file of the user's: $DITTOMQ_CONFIG, otherwise dittomq/contexts.toml in the configuration folder."""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dittomq.errors import ConfigError
from dittomq.metadata.topics import nearest_name


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster: its name here and its nameservers, "host:port" separated by commas."""

    name: str
    nameserver: str


@dataclass(frozen=True, slots=True)
class Contexts:
    """All that are known, by name; `current` None: none is chosen."""

    all: tuple[Context, ...] = ()
    current: str | None = None

    def find(self, name: str) -> Context:
        """The context of that name; raises ConfigError with the nearest known one."""
        for context in self.all:
            if context.name == name:
                return context
        similar = nearest_name(name, [context.name for context in self.all])
        hint = f'did you mean "{similar}"' if similar else "add it: dittomq context add NAME HOST:PORT"
        raise ConfigError(str(contexts_file()), f'there is no context "{name}"; {hint}')


def contexts_file() -> Path:
    """Where contexts are kept."""
    environment = os.environ  # noqa: TID251  # the file belongs to the user who runs the command
    if chosen := environment.get("DITTOMQ_CONFIG"):
        return Path(chosen)
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "dittomq" / "contexts.toml"


def load_contexts() -> Contexts:
    """All contexts, none when there is no file; raises ConfigError for a file that is not one of ours."""
    path = contexts_file()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}; correct it or remove it") from error
    return _contexts(path, document)


def current_context() -> Context | None:
    """The one that is chosen, None when none is."""
    contexts = load_contexts()
    return contexts.find(contexts.current) if contexts.current is not None else None


def save_context(name: str, nameserver: str) -> None:
    """Remember a cluster; one of that name is replaced."""
    if not name or not nameserver:
        raise ConfigError("context", "a name and a nameserver are not empty")
    contexts = load_contexts()
    others = [context for context in contexts.all if context.name != name]
    _write(Contexts(tuple(sorted([*others, Context(name, nameserver)], key=lambda one: one.name)), contexts.current))


def use_context(name: str) -> None:
    """Make it the current one; raises ConfigError when there is none of that name."""
    contexts = load_contexts()
    contexts.find(name)
    _write(Contexts(contexts.all, name))


def _contexts(path: Path, document: dict[str, Any]) -> Contexts:
    named, current = document.get("contexts", {}), document.get("current")
    valid = isinstance(named, dict) and all(isinstance(value, str) for value in named.values())
    if not valid or not isinstance(current, str | None) or document.keys() - {"contexts", "current"}:
        raise ConfigError(str(path), 'holds other things than "current" and a table "contexts" of texts; correct it or remove it')
    return Contexts(tuple(Context(name, nameserver) for name, nameserver in sorted(named.items())), current)


def _write(contexts: Contexts) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    lines = [f"current = {_quoted(contexts.current)}"] if contexts.current is not None else []
    lines += ["[contexts]", *(f"{_quoted(one.name)} = {_quoted(one.nameserver)}" for one in contexts.all)]
    path = contexts_file()
    try:
        text = ("\n".join(lines) + "\n").encode()
        place = path.resolve()
        if place.exists() and not place.is_file():  # a device that is renamed over is gone for everybody
            raise ConfigError(str(path), "is no file; let DITTOMQ_CONFIG name one")
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}.{os.getpid()}")
        beside.write_bytes(text)
        beside.replace(place)
    except UnicodeEncodeError as error:
        raise ConfigError("context", "its name and nameserver must be UTF-8 text") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise ConfigError(str(path), f"cannot be written: {error.strerror if isinstance(error, OSError) else error}") from error


def _quoted(text: str) -> str:
    """A TOML basic string is a JSON string, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
