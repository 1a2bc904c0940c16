"""The pins of requirements/."""

import re
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "requirements"


def pins(file: str) -> dict[str, str]:
    """Versions by the names of the distributions."""
    lines = (_FOLDER / file).read_text().splitlines()
    return dict(line.split("==") for line in lines if re.match(r"[a-z]", line))
