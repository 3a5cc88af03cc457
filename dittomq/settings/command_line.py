"""The flags that every service takes."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from dittomq.settings.layers import Loaded, T, load
from dittomq.settings.rendering import render

USAGE_EXIT = 64


class _ServiceParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_EXIT, f"{self.prog}: {message}; see --help\n")


def configured(config_class: type[T], program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Loaded[T]:
    """The configuration that the flags ask for; raises ConfigError.

    Exits after --print-config and --check-config with 0, after wrong flags with 64.
    """
    parser = _ServiceParser(prog=program, allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="TABLE.KEY=VALUE", dest="overrides", help="wins over file and environment"
    )
    parser.add_argument("--print-config", action="store_true", help="print the effective configuration with origins, and exit")
    parser.add_argument("--check-config", action="store_true", help="the same; exits with 64 when it does not hold")
    flags = parser.parse_args(arguments)
    loaded = load(config_class, flags.config, environment, flags.overrides)
    if flags.print_config or flags.check_config:
        sys.stdout.write(render(loaded))
        parser.exit(0)
    return loaded
