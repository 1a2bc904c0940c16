"""The bundles that a run loads, chosen by the scorers asked for. Loads none."""

from collections.abc import Sequence
from pathlib import Path

from turnscore_models import BundleError, starter_bundles
from turnscore_models.bundle import read_manifest
from turnscore_models.store import resolve

_NO_TURNS = "encoder"
"""The kind that compares texts: it scores no turn."""


def choose_bundles(models: Sequence[str] | None, scorers: Sequence[str] | None) -> tuple[Path, ...]:
    """The bundles of the scorers asked for: all but stand-ins, or those in `scorers`, in that order.

    `models` are as TURNSCORE_MODELS takes them; None means the starter bundles. Raises BundleError for a scorer without
    a bundle.
    """
    folders = starter_bundles() if models is None else [resolve(each).folder for each in models]
    references = {
        manifest.kind: (folder, manifest.stand_in)
        for folder, manifest in ((each, read_manifest(each)) for each in folders)
        if manifest.kind != _NO_TURNS or models is not None
    }
    meant = [name for name, (_, is_stand_in) in references.items() if not is_stand_in] or list(references)
    for name in scorers or ():
        if name not in references:
            raise BundleError(
                f"--scorers names {name}, for which there is no bundle; there are: {', '.join(references)}"
            )
    return tuple(references[name][0] for name in dict.fromkeys(scorers or meant))
