"""Marks of turns by large language models: collected, imported, compared, and stood in for by a scorer."""
