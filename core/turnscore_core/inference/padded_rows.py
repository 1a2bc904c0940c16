"""Packing: token lists into rectangular arrays of a few widths."""

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
