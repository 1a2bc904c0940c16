"""`turnscore keys`: makes API keys. Shows a key once and keeps its hash."""

import hashlib
import secrets
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from turnscore_wire import describe_refusal

from turnscore_service.auth.access import UnusableKeysError, read_keys
from turnscore_service.settings.api import KeyEntry, KeyName

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Makes API keys for turnscore.")


@app.callback()
def _group() -> None: ...  # so that `new` stays a command of its own


_KEY_BYTES = 32  # 256 random bits are too many to try, so one round of SHA-256 without salt is enough


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the key; it may appear in logs and metrics.")],
    file: Annotated[
        Path | None, typer.Option(help="File to append the entry to, for TURNSCORE_AUTH__KEYS_FILE.")
    ] = None,
    turns_per_second: Annotated[float | None, typer.Option(help="Turns per second that the key may ask for.")] = None,
) -> None:
    """Prints a new key, and the entry that lets it in."""
    if file is not None:
        _check_file(file, name)
    key = f"ts_{secrets.token_urlsafe(_KEY_BYTES)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    try:
        TypeAdapter(dict[KeyName, KeyEntry]).validate_python(
            {name: {"sha256": digest, "turns_per_second": turns_per_second}}
        )
    except ValidationError as error:
        raise typer.BadParameter(describe_refusal(error)[1]) from None
    lines = [f'["{name}"]', f'sha256 = "{digest}"']
    if turns_per_second is not None:
        lines.append(f"turns_per_second = {turns_per_second}")
    entry = "\n".join(lines) + "\n"
    typer.echo(key)
    if file is None:
        typer.echo(f"\n{entry}", nl=False, err=True)
    else:
        with file.open("a", encoding="utf-8") as output:
            output.write(f"\n{entry}" if output.tell() else entry)


def _check_file(file: Path, name: str) -> None:
    """Raises BadParameter where the entry could not be appended, or would break the file."""
    try:
        known = read_keys(file) if file.exists() else {}
    except UnusableKeysError as error:
        raise typer.BadParameter(str(error)) from None
    if name in known:
        raise typer.BadParameter(f"{file} already has a key of that name")
