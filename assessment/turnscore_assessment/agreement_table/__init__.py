"""One page on the agreement of every scorer with people on every development set. Measures; chooses nothing."""
