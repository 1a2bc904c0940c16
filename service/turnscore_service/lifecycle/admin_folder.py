"""The admin folder: where the workers' sockets lie. Refuses one that others may look into, or that cannot hold them."""

import os
import stat
from pathlib import Path

from turnscore_models.admin import FOLDER_VARIABLE, SOCKET_SUFFIX

_MOST_PATH_BYTES = 107
"""Of a Unix socket's path (unix(7), without the byte that ends it)."""


class UnusableFolderError(Exception):
    """The sockets cannot lie in the folder; the message says why, and what to do."""


def prepare_folder(folder: Path) -> None:
    """Makes the folder where it is missing. Raises UnusableFolderError as `check_folder` does."""
    check_folder(folder)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UnusableFolderError(f"{folder} cannot be made ({error.strerror}): choose another path") from error
    check_folder(folder)  # another may have made it meanwhile


def check_folder(folder: Path) -> None:
    """Makes nothing. Raises UnusableFolderError where a process of this user cannot have its sockets in the folder.

    One that is missing has to have a parent in which it can be made.
    """
    longest = os.fsencode(path_in(folder, worker=9999, pid=9_999_999))
    if len(longest) > _MOST_PATH_BYTES:
        raise UnusableFolderError(
            f"{folder} is too long for sockets in it ({len(longest)} bytes, {_MOST_PATH_BYTES} at most): choose a "
            "shorter path"
        )
    try:
        found = folder.stat()
    except FileNotFoundError:
        _check_parent(folder)
        return
    except OSError as error:
        raise UnusableFolderError(f"{folder} cannot be read ({error.strerror}): choose another") from error
    if not stat.S_ISDIR(found.st_mode):
        raise UnusableFolderError(f"{folder} is no folder: choose another path, or remove it")
    if found.st_uid != os.geteuid():
        raise UnusableFolderError(
            f"{folder} belongs to user {found.st_uid}, and this process is of {os.geteuid()}: give it to this user "
            "(chown), or run as the other"
        )
    if found.st_mode & 0o077:
        raise UnusableFolderError(f"{folder} is open to others (mode {stat.S_IMODE(found.st_mode):o}): chmod 700")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UnusableFolderError(
            f"no file can be made in {folder} (mode {stat.S_IMODE(found.st_mode):o}): chmod 700, "
            "or mount it so that it can be written"
        )


def unusable(error: UnusableFolderError) -> str:
    """The sentence that ends a start."""
    return f"{FOLDER_VARIABLE}: {error}"


def path_in(folder: Path, *, worker: int, pid: int) -> Path:
    """Of one worker's socket."""
    return folder / f"worker-{worker}-{pid}{SOCKET_SUFFIX}"


def _check_parent(folder: Path) -> None:
    parent = folder.parent
    if not parent.is_dir():
        raise UnusableFolderError(f"{folder} cannot be made, because {parent} is no folder: make that first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UnusableFolderError(
            f"{folder} cannot be made, because this user may not write in {parent}: make it, with this user as its "
            "owner and mode 700"
        )
