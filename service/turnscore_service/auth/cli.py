"""`turnscore keys`: makes, lists, rotates and revokes API keys. Shows a key once and keeps its hash.

The file is edited as text, so that comments stay, and replaced at once: the service reads either all of it or none.
"""

import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from turnscore_wire import describe_refusal

from turnscore_service.auth.access import UnusableKeysError, parse_keys, read_keys
from turnscore_service.settings.api import KeyEntry, KeyName

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make, list, rotate and revoke API keys.")

_KEY_BYTES = 32  # 256 random bits are too many to try, so one round of SHA-256 without salt is enough
_NAME = typer.Argument(help="Name of the key; it may appear in logs and metrics.")
_VARIABLE = "TURNSCORE_AUTH__KEYS_FILE"
KeysFile = Annotated[Path, typer.Option(envvar=_VARIABLE, help="The file of the keys.")]


@app.command()
def new(
    name: Annotated[str, _NAME],
    file: Annotated[Path | None, typer.Option(envvar=_VARIABLE, help="File to append the entry to.")] = None,
    turns_per_second: Annotated[float | None, typer.Option(help="Turns per second that the key may ask for.")] = None,
) -> None:
    """Make a key: print it, and print its entry or append that to the file."""
    known = _read(file) if file is not None and file.exists() else {}
    if name in known:
        raise typer.BadParameter(f"{file} already has a key of that name; `turnscore keys rotate` makes its second")
    key, digest = _make_key()
    try:
        made = TypeAdapter(dict[KeyName, KeyEntry]).validate_python(
            {name: {"sha256": digest, "turns_per_second": turns_per_second}}
        )
    except ValidationError as error:
        raise typer.BadParameter(describe_refusal(error)[1]) from None
    lines = [f'["{name}"]', f'sha256 = "{digest}"']
    if turns_per_second is not None:
        lines.append(f"turns_per_second = {turns_per_second}")
    entry = "\n".join(lines) + "\n"
    if file is None:
        typer.echo(f"\n{entry}", nl=False, err=True)
    else:
        text = _text_of(file) if file.exists() else ""
        _replace(file, f"{text}\n{entry}" if text else entry, {**known, **made})
    typer.echo(key)


@app.command("list")
def list_keys(file: KeysFile) -> None:
    """Print each name with the ids of its keys and what it may do; never a key or its hash."""
    known = _read(file)
    width = max(map(len, known), default=0)
    for name, entry in known.items():
        ids = _id(entry.sha256) + (f" (before: {_id(entry.previous_sha256)})" if entry.previous_sha256 else "")
        limits = entry.model_dump(exclude={"sha256", "previous_sha256"}, exclude_defaults=True)
        typer.echo("  ".join([f"{name:<{width}}", ids, *(f"{field}={value}" for field, value in limits.items())]))


@app.command()
def rotate(name: Annotated[str, _NAME], file: KeysFile) -> None:
    """Print a second key of that name; the previous key stays valid until it is revoked."""
    known = _read(file)
    entry = known.get(name)
    if entry is None:
        raise _unknown(file, name, known)
    if entry.previous_sha256 is not None:
        raise typer.BadParameter(f"{name} has two keys; revoke one first: {_id(entry.previous_sha256)} is the older")
    key, digest = _make_key()
    _edit(file, known, name, entry.model_copy(update={"sha256": digest, "previous_sha256": entry.sha256}))
    typer.echo(key)
    typer.echo(f"the previous key is valid until `turnscore keys revoke {_id(entry.sha256)} --file {file}`", err=True)


@app.command()
def revoke(key: Annotated[str, typer.Argument(help="A name, or the id of one key.")], file: KeysFile) -> None:
    """Revoke one key by id, or all keys of a name."""
    known = _read(file)
    ids = {name: (_id(entry.sha256), _id(entry.previous_sha256 or "")) for name, entry in known.items()}
    names = [key] if key in known else [name for name, own in ids.items() if key in own]
    if not names:
        raise _unknown(file, key, known)
    if len(names) > 1:
        raise typer.BadParameter(f"several keys have the id {key}: {', '.join(names)}; revoke one by its name")
    [name] = names
    entry, changed = known[name], None
    if key != name and entry.previous_sha256 is not None:
        kept = entry.previous_sha256 if key == _id(entry.sha256) else entry.sha256
        changed = entry.model_copy(update={"sha256": kept, "previous_sha256": None})
    _edit(file, known, name, changed)


def _make_key() -> tuple[str, str]:
    """A key, and its hash."""
    key = f"ts_{secrets.token_urlsafe(_KEY_BYTES)}"
    return key, hashlib.sha256(key.encode()).hexdigest()


def _id(digest: str) -> str:
    return digest[:8]  # of the hash, which tell the keys of a file apart


def _unknown(file: Path, name: str, known: Mapping[str, KeyEntry]) -> typer.BadParameter:
    return typer.BadParameter(f"{file} has no key {name}; it has: {', '.join(known) or 'none'}")


def _read(file: Path) -> dict[str, KeyEntry]:
    try:
        return read_keys(file)
    except UnusableKeysError as error:
        raise typer.BadParameter(str(error)) from None


def _text_of(file: Path) -> str:
    return file.read_bytes().decode()  # as it is, with its own ends of lines


def _edit(file: Path, known: Mapping[str, KeyEntry], name: str, entry: KeyEntry | None) -> None:
    """Puts the entry's hashes in the place of those there, or takes the name out where there is none."""
    lines = _text_of(file).splitlines(keepends=True)
    # Where the name's table and those in it begin and end; comments right above the next one are the next one's.
    header = rf"""\s*\[\s*(?:"{re.escape(name)}"|'{re.escape(name)}'|{re.escape(name)})\s*"""
    begin = next((place for place, line in enumerate(lines) if re.match(rf"{header}\]", line)), len(lines))
    others = re.compile(rf"(?!{header}\.)\s*\[")
    end = next((place for place in range(begin + 1, len(lines)) if others.match(lines[place])), len(lines))
    while end < len(lines) and re.match(r"\s*(#|$)", lines[end - 1]):
        end -= 1
    own = ""
    if entry is not None:
        own = re.sub(r"(?m)^[ \t]*previous_sha256[ \t]*=.*\n?", "", "".join(lines[begin:end]))
        before = f'previous_sha256 = "{entry.previous_sha256}"\n' if entry.previous_sha256 else ""
        hashed = r"""(?m)^([ \t]*sha256[ \t]*=[ \t]*)(?:"[0-9a-f]{64}"|'[0-9a-f]{64}')"""
        own = re.sub(hashed, rf'{before}\g<1>"{entry.sha256}"', own, count=1)
    text = "".join([*lines[:begin], own, *lines[end:]])
    expected = {**known, name: entry}
    _replace(file, text, {each: kept for each, kept in expected.items() if kept is not None})


def _replace(file: Path, text: str, expected: Mapping[str, KeyEntry]) -> None:
    """Writes the file with its mode and owner, or raises BadParameter and leaves it as it was."""
    try:
        if parse_keys(file, text) != expected:
            raise UnusableKeysError(f"{file} is not laid out as `turnscore keys new` does; edit it by hand")
        file = file.resolve()  # a link stays a link
        file.touch()
        stat = file.stat()
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
            written = Path(folder) / file.name
            written.write_bytes(text.encode())
            with suppress(PermissionError):
                os.chown(written, stat.st_uid, stat.st_gid)
            written.chmod(stat.st_mode)
            written.replace(file)
    except UnusableKeysError as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from None
