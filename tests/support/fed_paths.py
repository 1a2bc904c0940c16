"""A FED model without a model: each loss tells which tokens the graph would have let its predictor see."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from turnscore_core.inference.onnx_backend import Tensor
from turnscore_core.inference.padding import padded_width


class PathBackend:
    """Reads the feeds as the graph must: `paths` holds, for each target, the tokens before it, by position, and it.

    The loss of a target is a hash of that path, so that two ways of packing agree exactly if their paths do.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    def __init__(self) -> None:
        self.paths: list[tuple[int, ...]] = []
        self.tokens_fed = 0

    def round_width(self, longest: int) -> int:
        return padded_width(longest)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        trunks, width = feeds["trunk_ids"].shape
        self.tokens_fed += feeds["trunk_ids"].size + feeds["branch_ids"].size
        self.paths = []
        for place, target in zip(feeds["target_predictor"], feeds["target_ids"], strict=True):
            where = int(feeds["predictors"][place])
            if where < trunks * width:
                row, column = divmod(where, width)
                seen = feeds["trunk_ids"][row, : column + 1].tolist()
            else:
                seen = self._branch_path(feeds, *divmod(where - trunks * width, feeds["branch_ids"].shape[1]))
            self.paths.append((*seen, int(target)))
        return {"loss": np.array([path_loss(path) for path in self.paths], np.float32)}

    def _branch_path(self, feeds: Mapping[str, Any], row: int, column: int) -> list[int]:
        start = int(feeds["branch_start"][row])
        seen = feeds["trunk_ids"][feeds["branch_trunk"][row], :start].tolist()
        ends, positions = feeds["branch_ends"][row], feeds["branch_positions"][row]
        ancestors = [each for each in range(column + 1) if ends[each] >= column]
        assert positions[ancestors].tolist() == list(range(start, start + len(ancestors)))
        return seen + feeds["branch_ids"][row, ancestors].tolist()


def path_loss(path: tuple[int, ...]) -> float:
    """A loss between 0 and 10 that any change of the path changes."""
    return (hash(path) % 10_007) / 1000.7
