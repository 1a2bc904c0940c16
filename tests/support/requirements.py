"""The pins of requirements/."""

import re
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "requirements"


def pins(file: str) -> dict[str, str]:
    """Versions by the names of the distributions."""
    lines = (_FOLDER / file).read_text().splitlines()
    return dict(line.removesuffix(" \\").split("==") for line in lines if re.match(r"[a-z]", line))


def unhashed(file: str) -> list[str]:
    """The pins without the hash of a file: nothing goes on behind them."""
    lines = (_FOLDER / file).read_text().splitlines()
    return [line for line in lines if re.match(r"[a-z]", line) and not line.endswith(" \\")]
