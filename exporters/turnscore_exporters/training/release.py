"""A checkpoint as one file to keep outside git: the same folder gives the same bytes and checksum."""

import hashlib
import tarfile
from pathlib import Path

from turnscore_exporters.errors import CheckpointError
from turnscore_exporters.training.runs import STATE_FOLDER, TRAINING_FILE

_READ_AT_ONCE = 1 << 20


def pack_checkpoint(folder: Path, output: Path) -> str:
    """Writes all that an export needs to the tar file `output`, and returns the file's SHA-256.

    The state of an interrupted training is left out. Raises CheckpointError where the folder is not a finished
    checkpoint; the file appears whole or not at all.
    """
    if not (folder / TRAINING_FILE).is_file():
        raise CheckpointError(f"{folder}: has no {TRAINING_FILE}: its training is not finished")
    if output.resolve().is_relative_to(folder.resolve()):
        raise CheckpointError(f"{output}: lies inside the checkpoint; choose another place")
    partial = output.with_name(output.name + ".partial")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(partial, "w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and name.parts[0] != STATE_FOLDER:
                archive.add(path, str(name), filter=_plain)
    partial.replace(output)
    with output.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(_READ_AT_ONCE):
            digest.update(chunk)
    return digest.hexdigest()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without owners and times, which differ between machines and days."""
    member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode = 0, 0, 0, "", "", 0o644
    return member
