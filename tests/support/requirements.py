"""The pins of requirements/."""

import re
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "requirements"


def pins(file: str, section: str = "") -> dict[str, str]:
    """Versions by the names of the distributions; of a file with several environments, those of one."""
    text = (_FOLDER / file).read_text()
    lines = (text.partition(f"\n# {section}\n")[2].partition("\n# ")[0] if section else text).splitlines()
    return dict(line.removesuffix(" \\").split("==") for line in lines if re.match(r"[a-z]", line))


def unhashed(file: str) -> list[str]:
    """The pins without the hash of a file: nothing goes on behind them."""
    lines = (_FOLDER / file).read_text().splitlines()
    return [line for line in lines if re.match(r"[a-z]", line) and not line.endswith(" \\")]
