"""Clusters by name, in a file of the user's: $DITTOMQ_CONFIG, otherwise dittomq/contexts.toml in the configuration folder."""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dittomq.errors import ConfigError
from dittomq.metadata.topics import nearest_name
from dittomq.security.certificate_files import NO_CERTIFICATES, CertificateFiles

_TLS_KEYS = ("ca_file", "certificate_file", "key_file")


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster: its name here, its nameservers, "host:port" separated by commas, and the certificates to use with it."""

    name: str
    nameserver: str
    tls: CertificateFiles = NO_CERTIFICATES


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


def save_context(name: str, nameserver: str, tls: CertificateFiles = NO_CERTIFICATES) -> None:
    """Remember a cluster; one of that name is replaced."""
    if not name or not nameserver:
        raise ConfigError("context", "a name and a nameserver are not empty")
    contexts = load_contexts()
    others = [context for context in contexts.all if context.name != name]
    _write(Contexts(tuple(sorted([*others, Context(name, nameserver, tls)], key=lambda one: one.name)), contexts.current))


def use_context(name: str) -> None:
    """Make it the current one; raises ConfigError when there is none of that name."""
    contexts = load_contexts()
    contexts.find(name)
    _write(Contexts(contexts.all, name))


def _contexts(path: Path, document: dict[str, Any]) -> Contexts:
    named, current = document.get("contexts", {}), document.get("current")
    valid = isinstance(named, dict) and all(isinstance(value, str) or _is_with_tls(value) for value in named.values())
    if not valid or not isinstance(current, str | None) or document.keys() - {"contexts", "current"}:
        raise ConfigError(str(path), 'holds other things than "current" and a table "contexts" of texts; correct it or remove it')
    return Contexts(tuple(_context(name, value) for name, value in sorted(named.items())), current)


def _is_with_tls(value: object) -> bool:
    """Whether it is a context's table: its nameserver, and files of certificates."""
    if not isinstance(value, dict) or "nameserver" not in value or value.keys() - {"nameserver", *_TLS_KEYS}:
        return False
    return all(isinstance(each, str) for each in value.values())


def _context(name: str, value: str | dict[str, str]) -> Context:
    if isinstance(value, str):
        return Context(name, value)
    ca, certificate, key = (value.get(each, "") for each in _TLS_KEYS)
    settings = (f"contexts.{name}.ca_file", f"contexts.{name}.certificate_file", f"contexts.{name}.key_file")
    return Context(name, value["nameserver"], CertificateFiles(ca, certificate, key, settings))


def _write(contexts: Contexts) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    lines = [f"current = {_quoted(contexts.current)}"] if contexts.current is not None else []
    lines += ["[contexts]", *(f"{_quoted(one.name)} = {_value(one)}" for one in contexts.all)]
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


def _value(context: Context) -> str:
    """The nameserver, or a table with it where there is more to say."""
    if not context.tls:
        return _quoted(context.nameserver)
    tls = context.tls
    files = [(key, path) for key, path in zip(_TLS_KEYS, (tls.ca, tls.certificate, tls.key), strict=True) if path]
    return "{ " + ", ".join(f"{key} = {_quoted(text)}" for key, text in [("nameserver", context.nameserver), *files]) + " }"


def _quoted(text: str) -> str:
    """A TOML basic string is a JSON string, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
