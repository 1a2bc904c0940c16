"""Growth of a batch: which turns, sorted by width, are worth computing together. Queues and runs nothing."""

import math
from collections.abc import Sequence

from turnscore_core.inference.batch_budget import WasteLimit
from turnscore_core.inference.padded_rows import padded_width
from turnscore_core.scorers.scorer import TokenPack


class SizedPack:
    """A pack, and how large it is, looked up once: a queue asks often."""

    __slots__ = ("alone", "pack", "padded", "padded_width", "real", "rows", "width")

    def __init__(self, pack: TokenPack) -> None:
        self.pack = pack
        lengths = [len(row) for row in pack.rows]
        self.rows = len(lengths)
        self.width = max(lengths)
        """Tokens in the longest row."""
        self.real = sum(lengths)
        """Tokens without padding."""
        self.padded_width = padded_width(self.width)
        self.padded = self.rows * self.padded_width
        """Tokens with padding, alone."""
        self.alone = self.padded * self.padded_width
        """What it costs alone: rows x longest^2."""


def padded_tokens(pack: TokenPack) -> int:
    """What the pack has with padding where it is alone."""
    return SizedPack(pack).padded


def grow_batch(sizes: Sequence[SizedPack], place: int, budget: float, waste: WasteLimit) -> tuple[int, int]:
    """The slice of `sizes`, sorted by width, that makes the largest allowed batch around the one at `place`.

    Takes the nearest in width first, on either side, while the padded tokens are within `budget` and the batch's cost
    (rows x longest^2) is within what `waste` allows.
    """
    first = sizes[place]
    rows, longest, alone = first.rows, first.padded_width, first.alone
    low, high = place, place + 1
    can_go_down, can_go_up = True, True
    while can_go_down or can_go_up:
        gap_below = first.width - sizes[low - 1].width if can_go_down and low > 0 else math.inf
        gap_above = sizes[high].width - first.width if can_go_up and high < len(sizes) else math.inf
        if gap_below == gap_above == math.inf:
            break
        goes_down = gap_below <= gap_above
        other = sizes[low - 1 if goes_down else high]
        all_rows, widest, all_alone = rows + other.rows, max(longest, other.padded_width), alone + other.alone
        pays = max(waste.most * all_alone, all_alone + waste.cells_per_run * (high - low))
        if all_rows * widest <= budget and all_rows * widest**2 <= pays:
            rows, longest, alone = all_rows, widest, all_alone
            low, high = low - goes_down, high + (not goes_down)
        elif goes_down:
            can_go_down = False
        else:
            can_go_up = False
    return low, high
