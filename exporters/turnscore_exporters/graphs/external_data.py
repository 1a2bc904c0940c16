"""The suffix of the file beside a large graph. Imports nothing, so every exporter may use it."""

DATA_SUFFIX = ".data"
"""Suffix of the file that holds a large graph's weights."""
