"""Criterion: what one team asks of a reply, learned from its own judgements on the features of quality's encoder.

A service may have many: each is a scorer under its bundle's name. The head is linear, so that one pass of the encoder
serves quality and all of them. One whose bundle has a second graph of its own takes a pass of its own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from turnscore_models.bundle import Bundle
from turnscore_models.manifest import CRITERION

from turnscore_core.inference.onnx_backend import Array, Backend
from turnscore_core.scorers.quality import HeadOptions, HeadScorer, LinearHead
from turnscore_core.scorers.reaction import Calibrated
from turnscore_core.scorers.scorer import RawScore, TokenPack
from turnscore_core.scorers.turn_warnings import REPEAT_TURNS


class CriterionOptions(HeadOptions):
    calibrated: Calibrated = Field(description="From what the head gives to the value.")
    scale: Annotated[tuple[float, float], Field(description="The marks that are the values 0 and 1.")]
    description: str = Field(default="", description="The criterion in the words that its judges were given.")


class CriterionScorer(HeadScorer):
    """Where on the marks' scale, from 0 to 1, its judges would put the turn."""

    KIND: ClassVar[str] = CRITERION
    looked_through: ClassVar[int] = REPEAT_TURNS  # as quality, whose pass it shares

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        """Raises RuntimeError as HeadScorer does, and for wrong options or weights."""
        options = bundle.read_options(CriterionOptions)
        self._calibrated = options.calibrated
        super().__init__(bundle, backend, options)

    def open_heads(self, path: Path, backend: Backend) -> None:
        """Reads `weights` float32 [columns] and `bias`, a scalar, of the file."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                weights, bias = stored["weights"].astype(np.float32), float(stored["bias"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RuntimeError(f"{path.name} cannot be read: {error}") from error
        if weights.ndim != 1 or not (np.isfinite(weights).all() and np.isfinite(bias)):
            raise RuntimeError(f"{path.name} does not hold one finite weight for each column")
        self.linear = LinearHead(weights, bias, self._calibrated.slope, self._calibrated.bias)

    def read_features(self, batch: Sequence[TokenPack], features: Array) -> list[RawScore]:
        """The value of each turn."""
        assert self.linear is not None
        return [self.linear.read(each) for each in features]
