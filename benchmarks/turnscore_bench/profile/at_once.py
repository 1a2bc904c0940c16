"""A runtime that answers at once: what is left of a request's CPU is everything beside inference."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from turnscore_core.inference.onnx_backend import Array, Backend
from turnscore_core.inference.padding import padded_width
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_loader import load_scorers
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_service.settings.service import Settings

_PROBABILITY = 0.5


class AtOnceBackend:
    """Computes nothing: every turn has the same probability."""

    def __init__(self, like: Backend) -> None:
        self.inputs, self.outputs = like.inputs, like.outputs

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """A probability for each pair."""
        return {"probability": np.full(len(feeds["query_row"]), _PROBABILITY, dtype=np.float32)}

    def round_width(self, longest: int) -> int:
        """As a CPU rounds."""
        return padded_width(longest)


def load_at_once(settings: Settings, *, worker: int = 0) -> dict[str, LoadedScorer]:
    """As `load_scorers`, of engagement alone, with this runtime in the place of ONNX Runtime."""
    scorers = load_scorers(settings.loading(), worker=worker)
    for name, loaded in scorers.items():
        assert isinstance(loaded.scorer, EngagementScorer)
        backend = AtOnceBackend(loaded.scorer._backend)  # there is no other way to its graph's inputs
        scorers[name] = replace(loaded, scorer=EngagementScorer(loaded.bundle, backend))
    return scorers
