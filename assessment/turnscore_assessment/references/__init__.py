"""References: hypotheses against known good replies, how diverse they are, and how well that agrees with people."""
