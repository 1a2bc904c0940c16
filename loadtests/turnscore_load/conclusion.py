"""Conclusion: how the command of a load test ends."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from turnscore_load.check import Check


def conclude(file: Path, text: str, checks: Sequence[Check]) -> NoReturn:
    """Writes the report into the file and prints it; the exit code says whether every claim was kept."""
    file.write_text(text.rstrip() + "\n", encoding="utf-8")
    typer.echo(f"\n{text}")
    raise typer.Exit(0 if all(each.is_kept for each in checks) else 1)
