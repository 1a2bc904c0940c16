"""Whether a data folder holds the made-up sample, whose counts are not those of the public sets."""

from pathlib import Path

SAMPLE_FILE = "SAMPLE.md"
"""The file by which a sample's folder is known."""


def is_sample(folder: Path) -> bool:
    return (folder / SAMPLE_FILE).is_file()
