"""Comparison of two systems: from scores without people, and from ratings while they come in."""
