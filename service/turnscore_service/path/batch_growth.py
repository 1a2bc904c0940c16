"""Growth of a batch: which turns, sorted by width, are worth computing together. Queues and runs nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from turnscore_service.inference.batch_budget import WasteLimit
from turnscore_service.inference.padded_rows import padded_width
from turnscore_service.scorers.scorer import TokenPack


def padded_tokens(pack: TokenPack) -> int:
    """What the pack has with padding where it is alone."""
    return len(pack.rows) * padded_width(pack.width)


def grow_batch(packs: Sequence[TokenPack], place: int, budget: float, waste: WasteLimit) -> tuple[int, int]:
    """The slice of `packs`, sorted by width, that makes the largest allowed batch around the one at `place`.

    Takes the nearest in width first, on either side, while the padded tokens are within `budget` and the batch's cost
    (rows x longest^2) is within what `waste` allows.
    """
    width = packs[place].width
    size = BatchSize().plus(packs[place])
    low, high = place, place + 1
    can_go_down, can_go_up = True, True
    while can_go_down or can_go_up:
        gap_below = width - packs[low - 1].width if can_go_down and low > 0 else math.inf
        gap_above = packs[high].width - width if can_go_up and high < len(packs) else math.inf
        if math.isinf(min(gap_below, gap_above)):
            break
        goes_down = gap_below <= gap_above
        grown = size.plus(packs[low - 1 if goes_down else high])
        if grown.padded <= budget and grown.pays(waste):
            size, low, high = grown, low - goes_down, high + (not goes_down)
        elif goes_down:
            can_go_down = False
        else:
            can_go_up = False
    return low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """Packs, rows and longest row of a batch, its tokens without padding, and what its packs would cost one by one."""

    packs: int = 0
    rows: int = 0
    width: int = 0
    real: int = 0
    alone: int = 0

    @property
    def padded(self) -> int:
        return self.rows * padded_width(self.width)

    def pays(self, waste: WasteLimit) -> bool:
        """Whether it costs no more than it may."""
        cost = self.rows * padded_width(self.width) ** 2
        return cost <= max(waste.most * self.alone, self.alone + waste.cells_per_run * (self.packs - 1))

    def plus(self, pack: TokenPack) -> "BatchSize":
        rows = len(pack.rows)
        alone = self.alone + rows * padded_width(pack.width) ** 2
        return BatchSize(
            packs=self.packs + 1,
            rows=self.rows + rows,
            width=max(self.width, pack.width),
            real=self.real + pack.real_tokens,
            alone=alone,
        )
