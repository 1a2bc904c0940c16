"""Preflight: a process of its own loads a bundle and scores its self-test, while another version serves."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import IO, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from turnscore_models.bundle import Bundle, read_bundle
from turnscore_models.manifest import BundleError, GraphVariant

from turnscore_core.inference.concurrency import Concurrency
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_core.loaded_scorer import load_checked

_Result = TypeVar("_Result")


async def run_in_background(work: Callable[[], _Result]) -> _Result:
    """What the work returns or raises. A daemon does it, which cannot keep the process from ending."""
    done: Future[_Result] = Future()
    done.set_running_or_notify_cancel()  # so that one which no caller waits for any more takes its result
    Thread(target=_perform, args=(work, done), name="turnscore-background", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    finally:
        del done  # an error's traceback has this frame: both would keep each other, and a model that was refused


def _perform(work: Callable[[], _Result], done: "Future[_Result]") -> None:
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    finally:
        del done, work  # as above


_PR_SET_PDEATHSIG = 1  # prctl(2): the signal that this process gets when the thread that started it ends


class PreflightRequest(BaseModel):
    """What is to be checked: a graph of the bundle in a folder, with the options of a deployment."""

    folder: Path
    lenders: list[Path]
    options: dict[str, JsonValue]
    variant: GraphVariant


class PreflightResult(BaseModel):
    """The digest of the bundle that holds, or why it does not: exactly one of the two."""

    digest: str = ""
    refusal: str = ""


def check(request: PreflightRequest) -> PreflightResult:
    """Checks every checksum, loads the graph on the CPU, in one thread, and scores the self-test turns."""
    try:
        bundle = with_options(read_bundle(request.folder, request.lenders), request.options)
        load_checked(bundle, request.variant, concurrency=Concurrency())
    except (BundleError, DeviceError) as error:
        return PreflightResult(refusal=str(error))
    return PreflightResult(digest=bundle.digest)


def with_options(bundle: Bundle, options: dict[str, JsonValue]) -> Bundle:
    """The bundle as if its manifest had these options, and no others; its digest is then another."""
    return replace(bundle, manifest=bundle.manifest.model_copy(update={"options": options}))


def end_with_parent() -> None:
    """Has the system end this process with the one that waits for it, and before any other where memory is short.

    Linux does; elsewhere the process ends when its preflight does.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")  # proc_pid_oom_score_adj(5): of all processes


def main() -> None:
    """The whole process. What else fails ends it with a traceback."""
    end_with_parent()
    request = PreflightRequest.model_validate_json(sys.stdin.buffer.read())
    sys.stdout.write(check(request).model_dump_json() + "\n")


PREFLIGHT_SECONDS = 600.0  # that a preflight may take. Chosen: the largest starter bundle, FED, takes 1.5 s of CPU
# Niceness. Chosen: next to two busy processes it takes a tenth of a CPU, and 19, a seventieth, may take minutes.
PRIORITY = 10
_COMMAND = (sys.executable, "-P", "-m", "turnscore_core.preflight")
_CRASHES = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV"}
MOST_KEPT = 1 << 16  # bytes of what a process printed. Chosen: a traceback and its warnings, and above any result

_LOGGER = logging.getLogger("turnscore.models")


class FailedPreflightError(BundleError):
    """The process that was to check a bundle ended without a result, or in its own time did not end."""


async def run_preflight(
    reference: str, request: PreflightRequest, *, seconds: float = PREFLIGHT_SECONDS, command: Sequence[str] = _COMMAND
) -> str:
    """The digest of what was checked. Whoever gives up waiting ends the process.

    Raises BundleError with the reason for which the bundle is refused, FailedPreflightError where there is none.
    """
    paths = os.pathsep.join(each or os.curdir for each in sys.path)  # it finds the code that this process found
    try:
        # Here and not in a thread: the process ends with the thread that started it.
        process = subprocess.Popen(  # noqa: S603 our own interpreter and module; a few milliseconds
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONIOENCODING": "utf-8"},
        )
    except OSError as error:
        raise FailedPreflightError(f"no process could be started to check {reference}: {error.strerror}") from error
    with suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PROCESS, process.pid, PRIORITY)
    try:
        result = await run_in_background(
            lambda: _wait_for_result(f"the preflight of {reference}", process, request, seconds)
        )
    finally:
        process.kill()
    if result.refusal:
        raise BundleError(result.refusal)
    return result.digest


class _Pipe:
    """What a process prints, of which the end is kept: a graph may warn without end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._kept = bytearray()
        self._thread = Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def read_end(self) -> str:
        """The last MOST_KEPT bytes; to be asked for once the process has ended."""
        self._thread.join(10.0)  # for what stands in the pipes of a process that has ended
        return bytes(self._kept).decode("utf-8", "replace")  # ONNX Runtime warns with the graph's own names

    def _read(self, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError):  # what the process started holds the pipe open, and it was closed here
            while piece := os.read(pipe.fileno(), MOST_KEPT):
                self._kept += piece
                del self._kept[:-MOST_KEPT]


def _wait_for_result(
    preflight: str, process: "subprocess.Popen[bytes]", request: PreflightRequest, seconds: float
) -> PreflightResult:
    """What the process says, which is collected. Blocks; raises FailedPreflightError."""
    with process:
        pipes = [_Pipe(each) for each in (process.stdout, process.stderr) if each is not None]
        Thread(target=_send_request, args=(process.stdin, request), daemon=True).start()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise FailedPreflightError(
                f"{preflight} did not end within {seconds:g} s: its graph hangs, or this machine has no CPU to spare; "
                "try again when it is quieter"
            ) from None
        finally:
            process.kill()
            printed, complained = [pipe.read_end() for pipe in pipes]
    if process.returncode:
        raise FailedPreflightError(f"{preflight} {_describe_end(preflight, process.returncode, complained)}")
    try:
        return PreflightResult.model_validate_json(printed.splitlines()[-1])
    except (IndexError, ValidationError):
        raise FailedPreflightError(f"{preflight} ended without a result") from None


def _send_request(pipe: IO[bytes], request: PreflightRequest) -> None:
    """In a thread, as a process that reads nothing takes no more than a pipe holds."""
    with suppress(OSError, ValueError), pipe:  # it has ended
        pipe.write(request.model_dump_json().encode())


def _describe_end(preflight: str, status: int, complained: str) -> str:
    if status == -signal.SIGKILL:
        return "was ended by SIGKILL, as the system does where memory is short"
    if status < 0:
        name = signal.Signals(-status).name
        return f"was ended by {name}{': its graph crashes here' if name in _CRASHES else ''}"
    _LOGGER.error("%s failed: %s", preflight, complained.strip())
    last = complained.strip().rpartition("\n")[2][-300:]
    return f"failed: {last or f'exit status {status}'}; the log has all that it printed"


if __name__ == "__main__":
    main()
