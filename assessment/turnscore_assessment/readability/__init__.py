"""Measures of texts alone: reading ease, and closeness to the context. No people, no scorer."""
