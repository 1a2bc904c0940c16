"""Whether a data folder holds the made-up sample: then no counts of public sets are to be expected of it."""

from pathlib import Path

SAMPLE_FILE = "SAMPLE.md"
"""In the folder that `turnscore-data sample` writes."""


def is_sample(folder: Path) -> bool:
    """Whether `turnscore-data sample` wrote the folder."""
    return (folder / SAMPLE_FILE).is_file()
