"""The build hook: every wheel, sdist and editable install first generates dittomq/_pb from proto/."""

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateProto(BuildHookInterface[Any]):
    """Runs tools/genproto.py of the tree that is being built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        spec = importlib.util.spec_from_file_location("genproto", root / "tools" / "genproto.py")
        assert spec is not None
        assert spec.loader is not None
        genproto = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(genproto)
        genproto.generate(root)
