"""The starter bundles: where they lie, in a checkout and in an installed wheel."""

from pathlib import Path

from turnscore_models.manifest import MANIFEST_FILE

_PACKAGE = Path(__file__).parent
_PLACES = (_PACKAGE / "starter", _PACKAGE.parent / "starter")
"""In a wheel they lie inside the package, in a checkout beside it."""


def starter_bundles() -> list[Path]:
    """The folders of the bundles that ship with turnscore, sorted by name."""
    return sorted(manifest.parent for place in _PLACES for manifest in place.glob(f"*/{MANIFEST_FILE}"))
