"""FED's reference turns: where a quality's value, or the mean of several, lies among theirs."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from turnscore_core.scorers.fed.options import FedBundleOptions, Loss
from turnscore_core.scorers.fed.questions import FedQuestion

Floats = NDArray[np.float64]
Curve = NDArray[np.float64]
"""The values at percentile 0, 1, ..., 100."""
_KEPT_CURVES = 1024
"""Choices of qualities whose curve is kept, 808 bytes each. Chosen."""


class FedReference:
    """The values of the bundle's reference turns on every quality that the bundle knows, by loss."""

    def __init__(self, file: Path, options: FedBundleOptions) -> None:
        """Reads the file. Raises RuntimeError where it is not what the options promise."""
        self._options = options
        self._names = list(options.qualities)
        self._curve = lru_cache(_KEPT_CURVES)(self._make_curve)
        try:
            with np.load(file, allow_pickle=False) as arrays:
                self._values: dict[str, Floats] = {loss: arrays[loss].astype(np.float64) for loss in arrays.files}
        except (OSError, ValueError) as error:
            raise RuntimeError(f"{file.name} cannot be read: {error}") from error
        for loss, values in self._values.items():
            if values.ndim != 2 or values.shape[1] != len(self._names):
                raise RuntimeError(f"{file.name}: {loss} has no value for each of {len(self._names)} qualities")

    def curves(self, question: FedQuestion) -> tuple[list[Curve | None], Curve | None]:
        """The curve of each quality asked for, and that of the mean over all of them.

        None where no reference turn was scored so: for qualities that are not the bundle's.
        """
        places = [self._place(name, quality) for name, quality in question.qualities]
        curves = [None if place is None else self._curve((place,), question.loss) for place in places]
        known = tuple(place for place in places if place is not None)
        mean = self._curve(known, question.loss) if len(known) == len(places) else None
        return curves, mean

    def _place(self, name: str, quality: object) -> int | None:
        return self._names.index(name) if self._options.qualities.get(name) == quality else None

    def _make_curve(self, places: Sequence[int], loss: Loss) -> Curve | None:
        if loss not in self._values:
            return None
        curve: Curve = np.percentile(self._values[loss][:, list(places)].mean(1), range(101))
        return curve


def place_on(curve: Curve, value: float) -> float:
    """Share of the reference turns, 0 to 100, that score lower; linear between whole percentiles."""
    return float(np.interp(value, curve, np.arange(101)))
