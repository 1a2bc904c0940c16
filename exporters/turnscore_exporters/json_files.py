"""JSON files that training and exports read and write; people read them too."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no file."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return document


def write_json(path: Path, document: object) -> None:
    """Writes a document, making the folder if needed; None values of a model are left out."""
    content = document.model_dump(mode="json", exclude_none=True) if isinstance(document, BaseModel) else document
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
