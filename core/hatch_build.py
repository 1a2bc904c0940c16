"""Adds the model store, which lies next to this folder in a checkout and inside it in an sdist."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ModelStore(BuildHookInterface[Any]):
    """Includes `turnscore_models` and its starter bundles in every wheel and sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        sibling = Path(self.root).parent / "model_store"
        store = sibling if sibling.is_dir() else Path(self.root) / "model_store"
        inside = "turnscore_models" if self.target_name == "wheel" else "model_store/turnscore_models"
        starter = "turnscore_models/starter" if self.target_name == "wheel" else "model_store/starter"
        build_data["force_include"] |= {str(store / "turnscore_models"): inside, str(store / "starter"): starter}
