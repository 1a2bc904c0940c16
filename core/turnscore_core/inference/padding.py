"""Padding: token rows as rectangular arrays of a few shapes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDTH_STEP = 8
"""Widths are rounded up to multiples of this, so that the runtime sees few shapes. Measured: with 4, fp32 sums are
grouped by the width, and a score of int8 FED changed by 0.0004 with its neighbours."""


def padded_width(longest: int) -> int:
    """The width of a row that has to hold `longest` tokens."""
    return -(-longest // WIDTH_STEP) * WIDTH_STEP


def pad_rows(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask, both int64 [rows, tokens]; the mask is 1 on real tokens."""
    width = padded_width(max(len(row) for row in rows))
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return ids, mask


STEPS_PER_OCTAVE = 4
"""Sizes between one power of two and the next. At most a quarter is padding, a tenth on average. Chosen."""
TOKEN_STEP = 8
"""Widths are multiples of this: fp16 kernels want it, and `packing` makes no others. Specified."""

ROW_AXES = frozenset({"rows", "pairs", "branches", "predictors", "targets"})
"""Axes whose elements know nothing of each other, so that more of them change nothing."""
TOKEN_AXES = frozenset({"tokens"})
"""Axes whose padding a mask hides. FED's widths are not among them: its places count padding."""


def round_up(size: int, least: int = 1) -> int:
    """The next of `least` times 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ..."""
    units = -(-size // least)
    step = max(1, (1 << (units - 1).bit_length()) // 2 // STEPS_PER_OCTAVE) if units > 1 else 1
    return -(-units // step) * step * least


def round_axis(axis: str, size: int) -> int:
    """The size that an axis of that name is padded to; axes that may not be padded keep theirs."""
    if axis in ROW_AXES:
        return round_up(size)
    return round_up(size, TOKEN_STEP) if axis in TOKEN_AXES else size
