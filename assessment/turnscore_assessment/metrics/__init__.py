"""Metrics against people: the agreement of scorers' and other numbers with a study's workers."""
