"""Distortion: words from elsewhere replace a span of a reply (Ji et al. 2022, appendix A.1). Reads no corpus."""

from collections.abc import Sequence

import numpy as np

SPANS = ((3, 1), (5, 2), (8, 3), (15, 4), (29, 5))
"""(most words of a reply, words that are replaced); of longer replies a fifth. The published table."""
LONG_SHARE = 5


def count_replaced(words: int) -> int:
    """How many of a reply's words are replaced; 0 of an empty reply."""
    if not words:
        return 0
    return next((span for most, span in SPANS if words <= most), words // LONG_SHARE)


def distort(reply: Sequence[str], donor: Sequence[str], generator: np.random.Generator) -> list[str]:
    """The reply's words with a random span replaced by as many consecutive words of the donor.

    The first and the last of three and more words stay. ValueError where the donor has too few words.
    """
    span = count_replaced(len(reply))
    if len(donor) < span:
        raise ValueError(f"{span} words are to be replaced, but the donor has only {len(donor)}")
    kept = 1 if len(reply) >= 3 else 0
    start = int(generator.integers(kept, len(reply) - kept - span + 1)) if reply else 0
    taken = int(generator.integers(0, len(donor) - span + 1))
    return [*reply[:start], *donor[taken : taken + span], *reply[start + span :]]
