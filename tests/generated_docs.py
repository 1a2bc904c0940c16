"""`python tests/generated_docs.py docs`: writes the pages that come from code; --check compares them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from turnscore_service.api.http.app import HttpApi
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import PREFIX, Settings

_TABLE_HEAD = "| variable | default | meaning |\n|---|---|---|\n"


def openapi_document() -> str:
    """docs/openapi.json: indented JSON with sorted keys."""
    document = HttpApi(Runtime(Settings())).documents.openapi()
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def settings_page(before: str) -> str:
    """docs/settings.md: the prose of the page as it was, and a row for each setting."""
    prose, _, _ = before.partition(_TABLE_HEAD)
    rows = (f"| `{name}` | {_shown_default(field)} | {field.description} |" for name, field in _fields(Settings))
    return prose + _TABLE_HEAD + "\n".join(rows) + "\n"


def _fields(model: type[BaseModel], prefix: str = PREFIX) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name.upper()}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation, f"{variable}__")
        else:
            yield variable, field


def _shown_default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return str(default).lower()
    return "(empty)" if default in (None, "", (), {}) else str(default)


def main(docs: Path, check: Annotated[bool, typer.Option(help="Compare instead of writing.")] = False) -> None:
    """Write the OpenAPI document and the table of settings into the folder DOCS."""
    settings = docs / "settings.md"
    pages = {docs / "openapi.json": openapi_document(), settings: settings_page(settings.read_text(encoding="utf-8"))}
    for file, text in pages.items():
        if not check:
            file.write_text(text, encoding="utf-8")
        elif file.read_text(encoding="utf-8") != text:
            sys.exit(f"{file} is not what the code says; `make generate WHAT=schema` writes it")


if __name__ == "__main__":
    typer.run(main)
