"""`python -m turnscore_service.api.http.openapi_document FILE`: writes the document of HTTP; --check compares it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from turnscore_service.api.http.app import HttpApi
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings


def openapi_document() -> str:
    """The document as it is committed: indented JSON with sorted keys."""
    document = HttpApi(Runtime(Settings())).documents.openapi()
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def main(file: Path, check: Annotated[bool, typer.Option(help="Compare instead of writing.")] = False) -> None:
    """Writes the service's OpenAPI document to FILE."""
    if not check:
        file.write_text(openapi_document(), encoding="utf-8")
    elif file.read_text(encoding="utf-8") != openapi_document():
        typer.echo(f"{file} is not what the service serves; `make generate WHAT=schema` writes it anew", err=True)
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
