"""The service in a process that samples its event loop: BentoML's app in uvicorn, as `bentoml serve` runs its workers.

    python -m turnscore_load.profiled_service PORT [--at-once]

Reads `"start"` and `"stop"` from its standard input, a line each, and answers each with a line of JSON. With
`--at-once` the runtime answers at once: what is left of a request's CPU is everything but inference.

A timer of the kernel interrupts the thread by its own CPU time, and the line it stands at is counted. Waiting counts
nothing, nor do other threads and other processes. What a thread does outside Python, such as a system call, counts at
the line that called it; what the event loop does between two callbacks counts at the next one's first lines. Linux
alone.
"""

import asyncio
import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import psutil
import uvicorn
from turnscore_core.inference.onnx_backend import Array, Backend, padded_width
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_core.model_loader import load_scorers
from turnscore_core.scorers.engagement import EngagementScorer
from turnscore_service.settings.service import Settings

LOOP = "event loop and kernel"
RULES: list[list[str]] = json.loads(Path(__file__).with_name("profile_stages.json").read_text(encoding="utf-8"))
"""The end of a file's path or a part of it, with a function's name behind a colon; the first that fits counts."""

STAGES = tuple(dict.fromkeys([LOOP, *(stage for _, stage in RULES)]))


@cache
def stage_of(file: str, function: str) -> str | None:
    """The stage of a function; None for one that serves several, which belongs to its caller."""
    for part, stage in RULES:
        path, _, wanted = part.partition(":")
        if path in file and (not wanted or wanted == function):
            return stage
    return None


def describe(frame: FrameType) -> tuple[str, str, int]:
    """The stage of the innermost function that has one, and the file and line of ours that is nearest to it."""
    frames = list(_outwards(frame))
    stage = next((found for each in frames if (found := stage_of(*_name(each)))), LOOP)
    own = next((each for each in frames if "turnscore_" in each.f_code.co_filename), frame)
    return stage, own.f_code.co_filename, own.f_lineno or 0


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _name(frame: FrameType) -> tuple[str, str]:
    return frame.f_code.co_filename, frame.f_code.co_name


_SECONDS = 0.001
"""Between samples. The kernel looks at its own ticks, 1 to 4 ms apart, so that many samples count as one more."""
_TO_THREAD = 4
"""SIGEV_THREAD_ID of <signal.h>."""


class _Event(ctypes.Structure):
    """struct sigevent."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )


class _Time(ctypes.Structure):
    """struct itimerspec: the interval, then the first time."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns"))


class ThreadSampler:
    """Counts where the main thread stands. To be made, started and stopped in it."""

    def __init__(self) -> None:
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        self.counts: Counter[tuple[str, str, int]] = Counter()
        self.cpu_seconds = 0.0
        event = _Event(signo=signal.SIGPROF, notify=_TO_THREAD, thread=threading.get_native_id())
        signal.signal(signal.SIGPROF, self._take)
        if self._libc.timer_create(self._clock, ctypes.byref(event), ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def start(self) -> None:
        """Forgets what was counted and starts again."""
        signal.set_wakeup_fd(-1)  # uvloop would wake up for every sample, and be measured doing so
        self.counts.clear()
        self.cpu_seconds = -time.clock_gettime(self._clock)
        self._set(_SECONDS)

    def stop(self) -> None:
        """Counts no more; `cpu_seconds` is what the thread took since the start."""
        self._set(0.0)
        self.cpu_seconds += time.clock_gettime(self._clock)

    def _set(self, seconds: float) -> None:
        nanoseconds = int(seconds * 1e9)
        times = _Time(every_s=0, every_ns=nanoseconds, first_s=0, first_ns=nanoseconds)
        if self._libc.timer_settime(self._timer, 0, ctypes.byref(times), None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _take(self, _: int, frame: FrameType | None) -> None:
        if frame is not None:
            self.counts[describe(frame)] += 1


_PROBABILITY = 0.5


class AtOnceBackend:
    """Computes nothing: every turn has the same probability."""

    def __init__(self, like: Backend) -> None:
        self.inputs, self.outputs = like.inputs, like.outputs

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """A probability for each pair."""
        return {"probability": np.full(len(feeds["query_row"]), _PROBABILITY, dtype=np.float32)}

    def round_width(self, longest: int) -> int:
        """As a CPU rounds."""
        return padded_width(longest)

    def open_part(self, graph: Path) -> "AtOnceBackend":
        """Itself: a part computes nothing either."""
        return self


def load_at_once(settings: Settings, *, worker: int = 0) -> dict[str, LoadedScorer]:
    """As `load_scorers`, of engagement alone, with this runtime in the place of ONNX Runtime."""
    scorers = load_scorers(settings.loading(), worker=worker)
    for name, loaded in scorers.items():
        assert isinstance(loaded.scorer, EngagementScorer)
        backend = AtOnceBackend(loaded.scorer._backend)  # there is no other way to its graph's inputs
        scorers[name] = replace(loaded, scorer=EngagementScorer(loaded.bundle, backend))
    return scorers


_KEEP_ALIVE_SECONDS = 60
"""Longer than a refused caller waits before it comes back on its connection."""
READY = "ready"


async def follow_orders() -> None:
    """Starts and stops the sampling as the parent says, until the standard input ends."""
    sampler, process, before = ThreadSampler(), psutil.Process(), 0.0

    def cpu_seconds() -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    loop = asyncio.get_running_loop()
    while order := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if json.loads(order) == "start":
            before = cpu_seconds()
            sampler.start()
            _tell("started")
        else:
            sampler.stop()
            samples = [(*place, count) for place, count in sampler.counts.items()]
            _tell({"cpu_seconds": cpu_seconds() - before, "loop_seconds": sampler.cpu_seconds, "samples": samples})


def _tell(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class _Server(uvicorn.Server):
    """uvicorn's, which follows orders once it serves."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        from turnscore_service import bento

        await bento._RUNTIME.wait_until_loaded()
        bento._RUNTIME.pipeline()  # raises what kept it from loading
        _tell(READY)
        await follow_orders()
        self.should_exit = True


def serve(port: int, *, at_once: bool) -> None:
    """Serves until the standard input ends."""
    from turnscore_service import bento  # reads its settings, and starts nothing yet

    if at_once:
        bento._RUNTIME._load_scorers = load_at_once

    app = bento.TurnScore.to_asgi(is_main=True)  # type: ignore[attr-defined]
    config = uvicorn.Config(
        app, port=port, log_config=None, server_header=False, timeout_keep_alive=_KEEP_ALIVE_SECONDS
    )
    _Server(config).run()


if __name__ == "__main__":
    serve(int(sys.argv[1]), at_once="--at-once" in sys.argv)
