"""The console on which commands print tables."""

from rich.console import Console

PLAIN_WIDTH = 240
"""Columns where the output is not a terminal. Chosen: the widest table fits."""


def open_console() -> Console:
    """A console as wide as the terminal, or as the widest table."""
    return Console() if Console().is_terminal else Console(width=PLAIN_WIDTH)
