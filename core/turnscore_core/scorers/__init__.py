"""Scorers: one module each, found by the kind of bundle that it reads."""
