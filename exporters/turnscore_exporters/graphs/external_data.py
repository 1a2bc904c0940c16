"""The name of what lies beside a large graph. Needs nothing, so that every exporter may use it."""

DATA_SUFFIX = ".data"
"""Of the file beside a large graph that holds its weights."""
