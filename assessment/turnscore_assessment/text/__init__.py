"""Measures of texts alone: how easy a reply reads, and how close it stays to what was said. No people, no scorer."""
