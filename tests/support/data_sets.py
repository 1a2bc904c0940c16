"""Where public data sets lie, for tests of published tables: `data/` in the checkout, or `shared/data` beside it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "data", ROOT.parent / "shared" / "data")
"""`DATA=data` is where the Makefile looks, too; neither folder is in the repository."""


def find_data(*names: str) -> list[Path]:
    """The named files in the first folder that has all of them; skips the test where none has."""
    for folder in FOLDERS:
        paths = [folder / name for name in names]
        if all(path.exists() for path in paths):
            return paths
    pytest.skip(f"neither data/ nor ../shared/data has {', '.join(names)}")
