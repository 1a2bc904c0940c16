"""References: hypotheses against known good replies, their diversity, and the agreement of both with people."""
