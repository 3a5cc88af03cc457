"""Configuration as a value: a frozen dataclass built from defaults, a TOML file, the environment and `--set`, each value with its origin.

A configuration class is a frozen dataclass whose fields are tables: frozen dataclasses too, or a free mapping of strings.
A key is declared as `Annotated[int, msgspec.Meta(ge=1, description="A sentence.")] = 5`; its unit is in its name.
"""

from dittomq.settings.command_line import configured
from dittomq.settings.layers import Configuration, Loaded, load
from dittomq.settings.rendering import Setting, render, settings_of

__all__ = ["Configuration", "Loaded", "Setting", "configured", "load", "render", "settings_of"]
