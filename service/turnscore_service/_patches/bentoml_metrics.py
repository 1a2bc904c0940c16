"""Gives the workers of each service a folder of their own for their series, where BentoML shares one folder.

BentoML gives all services of a user one folder and empties it at each start. Ours lie next to it, one per supervisor:

    $BENTOML_HOME/turnscore-metrics/4711-1763790000123/       counters and gauges of its workers, by process
                                    4711-1763790000123.lock   shared by its workers while they live

The kernel releases a lock however a process ends, so a folder whose lock is free is unused, and is removed.
"""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

import psutil

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
LEAST_FREE_BYTES = 16 * 1024**2  # a worker's series take about a megabyte
_held: list[int] = []  # descriptors of the locks that this process holds for as long as it lives


class FullDiskError(Exception):
    """There is no room for a worker's series; the message has the folder and what is free."""


def claim_folder() -> None:
    """Puts the folder of this worker's service in the place of BentoML's, and removes those of services that ended.

    To be called before the first series is made. Changes nothing in a process that BentoML gave no folder.
    """
    given = Path(os.environ.get(VARIABLE, ""))
    if given.name == "prometheus_multiproc_dir":
        os.environ[VARIABLE] = str(_own_folder(given.parent / "turnscore-metrics", psutil.Process(os.getppid())))


def refuse_full_disk() -> None:
    """Raises FullDiskError where BentoML's folder lies on a disk without room: a worker would end by SIGBUS there."""
    home = Path(os.environ.get("BENTOML_HOME", "~/bentoml")).expanduser()
    while not home.exists():
        home = home.parent
    free = shutil.disk_usage(home).free
    if free < LEAST_FREE_BYTES:
        raise FullDiskError(f"{home} has {free:,} bytes free; the workers' metrics need {LEAST_FREE_BYTES:,}")


def _own_folder(root: Path, supervisor: psutil.Process) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f"{supervisor.pid}-{int(supervisor.create_time() * 1000)}"
    for lock in root.glob("*.lock"):
        if lock.stem != folder.name:
            with suppress(OSError):  # held, or removed by somebody else meanwhile
                descriptor = os.open(lock, os.O_RDWR)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    lock.unlink()
                finally:
                    os.close(descriptor)
    _hold(folder.with_suffix(".lock"))
    folder.mkdir(exist_ok=True)
    return folder


def _hold(lock: Path) -> None:
    """Shares the lock until the process ends. One that was removed between opening and locking is created again."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(OSError):  # a file system without locks: nothing is removed there either
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == lock.stat().st_ino:
                _held.append(descriptor)
                return
        os.close(descriptor)
