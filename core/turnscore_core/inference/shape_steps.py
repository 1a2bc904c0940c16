"""Shape steps: the few sizes that the axes of a batch are padded to on a device that pays for every new shape."""

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
