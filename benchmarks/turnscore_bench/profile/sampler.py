"""Samples one thread by its own CPU time: a timer of the kernel interrupts it, and the line it stands at is counted.

Waiting counts nothing, nor do other threads and other processes. What a thread does outside Python, such as a system
call, counts at the line that called it; what the event loop does between two callbacks counts at the next one's first
lines. Linux alone.
"""

import ctypes
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType

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

    def __init__(self, describe: Callable[[FrameType], object]) -> None:
        """`describe` says of a frame what is to be counted."""
        self._describe = describe
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        self.counts: Counter[object] = Counter()
        self.cpu_seconds = 0.0
        event = _Event(signo=signal.SIGPROF, notify=_TO_THREAD, thread=threading.get_native_id())
        signal.signal(signal.SIGPROF, self._take)
        if self._libc.timer_create(self._clock, ctypes.byref(event), ctypes.byref(self._timer)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def start(self) -> None:
        """Forgets what was counted and counts anew."""
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
            self.counts[self._describe(frame)] += 1
