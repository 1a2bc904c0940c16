"""Adds the JavaScript client, which the page is made with, to the service's wheel."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageClient(BuildHookInterface[Any]):
    """Includes `clients/javascript/src` in the page's files; from a checkout the service reads it where it lies."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build."""
        if version == "editable":
            return
        for file in (Path(self.root) / "clients/javascript/src").glob("*.js"):
            build_data["force_include"][str(file)] = f"turnscore_service/api/page/static/turnscore/{file.name}"
