"""Processes: starts servers, reads the CPU seconds of their process trees, lets only the measured one run."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil

_START_SECONDS = 180
_STOP_SECONDS = 30


class StartError(Exception):
    """A server that did not start, with the end of its log."""


class Server:
    """A server and its children."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str], port: int) -> None:
        """Starts it with `folder` as its working directory; its output goes to `server.log` there.

        The program's path counts from where the caller is.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port
        self._log = folder / "server.log"
        with self._log.open("wb") as output:
            self._process = psutil.Popen(
                [str(Path(command[0]).absolute()), *command[1:]],
                cwd=folder,
                env={**_clean_environment(), **environment},
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the benchmark alone: it ends the servers
            )

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return int(self._process.pid)

    def wait_until_ready(self, path: str) -> None:
        """Returns when GET `path` answers 200. Raises StartError where the process ends or takes too long."""
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise StartError(f"ended with {self._process.returncode}: {self._log_end()}")
            try:
                with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5):
                    return
            except OSError:
                time.sleep(0.1)  # polling another process: there is nothing to wait on
        raise StartError(f"GET {path} did not answer 200 within {_START_SECONDS} s: {self._log_end()}")

    def cpu_seconds(self) -> float:
        """User and system time of the whole tree since it started, children that have ended included."""
        total = 0.0
        for process in self._tree():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        return total

    def pause(self) -> None:
        """Stops the tree from running, so that an idle server's polling costs the measured one nothing."""
        for process in self._tree():
            process.suspend()

    def resume(self) -> None:
        """Lets a paused tree run again."""
        for process in self._tree():
            process.resume()

    def stop(self) -> None:
        """Ends the server politely, and then what is left of its tree."""
        tree = self._tree()
        self.resume()
        if tree:
            self._process.send_signal(signal.SIGTERM)
        psutil.wait_procs(tree[:1], timeout=_STOP_SECONDS)
        for process in tree:
            if process.is_running():
                process.kill()
        psutil.wait_procs(tree, timeout=_STOP_SECONDS)

    def _tree(self) -> list[psutil.Process]:
        if self._process.poll() is not None:
            return []
        return [self._process, *self._process.children(recursive=True)]

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def _clean_environment() -> dict[str, str]:
    """The caller's, without settings of turnscore: it is measured as it comes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNSCORE_")}


def run_quietly(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The command's output. Raises StartError, with the end of what it wrote, where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if done.returncode:
        raise StartError(f"{Path(command[0]).name} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def drive(
    server: Server, client: str, job: Mapping[str, Any], folder: Path, settle_seconds: float = 0.0
) -> dict[str, Any]:
    """What the load generator, the module `client`, reports on the job, and the CPU seconds of the server meanwhile.

    The server runs only as long, and `settle_seconds` more for what it does after it has answered. Raises StartError
    where the load generator fails, as it does on a closed connection.
    """
    file = folder / "job.json"
    file.write_text(json.dumps(job))
    server.resume()
    try:
        before = server.cpu_seconds()
        output = run_quietly([sys.executable, "-m", client, str(file)])
        time.sleep(settle_seconds)  # a server's work after its answer is reported to nobody
        return {**json.loads(output), "cpu_seconds": server.cpu_seconds() - before}
    finally:
        server.pause()
