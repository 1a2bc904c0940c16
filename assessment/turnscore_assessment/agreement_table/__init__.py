"""One page on how every scorer goes with people on every development set. Measures; chooses nothing."""
