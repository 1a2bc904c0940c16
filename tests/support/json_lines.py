"""Files of JSON lines made up here."""

import json
from pathlib import Path
from typing import Any


def write_lines(path: Path, *lines: Any) -> Path:
    """An object a line; a text stands as it is, so that a line may be broken."""
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path
