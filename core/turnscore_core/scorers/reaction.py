"""Reaction: how satisfied is the user, and what does the user's turn show? Heads on the features of quality's encoder.

The user's turn stands in the response's place, so that it attends to what the chatbot said before it.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from turnscore_models.bundle import Bundle
from turnscore_wire import Speaker

from turnscore_core.inference.onnx_backend import Array, Backend
from turnscore_core.scorers.quality import Floats, HeadOptions, HeadScorer, logits_of
from turnscore_core.scorers.scorer import RawScore, TokenPack

Reaction = Literal[
    "satisfaction",
    "frustrated",
    "corrects",
    "repeats_request",
    "does_not_understand",
    "wants_out",
    "asks_for_a_person",
    "abuse",
    "pleased",
    "engages",
    "disengages",
]
REACTIONS: tuple[Reaction, ...] = get_args(Reaction)
"""What the heads say of a user turn: probabilities, and the satisfaction from 0 to 1."""
SIGNALS = REACTIONS[1:]


class Calibrated(BaseModel):
    """A head as a probability: the sigmoid of its logit times `slope`, plus `bias`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    slope: float = Field(gt=0)
    bias: float


class ReactionOptions(HeadOptions):
    calibrated: dict[Reaction, Calibrated] = Field(description="Of every head.")
    thresholds: dict[Reaction, Annotated[float, Field(ge=0, le=1)]] = Field(
        description="Probability from which on a signal counts as shown."
    )

    def calibrate(self, heads: Floats) -> Floats:
        """Satisfaction and probabilities [turns, heads] of heads [turns, heads]."""
        slopes, biases = np.array([(self.calibrated[name].slope, self.calibrated[name].bias) for name in REACTIONS]).T
        found: Floats = 1 / (1 + np.exp(-(logits_of(heads) * slopes + biases)))
        return found


class ReactionScorer(HeadScorer):
    """The user's satisfaction, 0 to 1, and in `details` the probability of each signal."""

    KIND: ClassVar[str] = "reaction"
    HEADS: ClassVar[Sequence[str]] = REACTIONS
    speaker: Speaker = "user"

    def __init__(self, bundle: Bundle, backend: Backend) -> None:
        """Raises RuntimeError as HeadScorer does, and for wrong options."""
        options = bundle.read_options(ReactionOptions)
        if missing := set(REACTIONS) - options.calibrated.keys():
            raise RuntimeError(f"the manifest's options are wrong: calibrated: lacks {', '.join(sorted(missing))}")
        self.signal_thresholds = {str(name): least for name, least in options.thresholds.items()}
        self._calibrate = options.calibrate
        super().__init__(bundle, backend, options)

    def read_features(self, batch: Sequence[TokenPack], features: Array) -> list[RawScore]:
        """The satisfaction of each turn, with its signals."""
        found = self._calibrate(self.answer(features)).tolist()
        return [RawScore(own[0], dict(zip(SIGNALS, own[1:], strict=True))) for own in found]
