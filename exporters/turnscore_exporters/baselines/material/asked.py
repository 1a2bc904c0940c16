"""What a baseline is asked to score: a response in its context, with references or facts where there are any."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A response to judge. `context` are the texts before it, oldest first."""

    context: tuple[str, ...]
    response: str
    references: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """What the response answers: the last text of the context that is not empty, or an empty one."""
        return next((text for text in reversed(self.context) if text.strip()), "")


class Baseline(Protocol):
    """A trained system. Each score depends on its own turn alone."""

    def score(self, asked: Sequence[Asked]) -> dict[str, Floats]:
        """Scores by the variant's name, one per turn."""
