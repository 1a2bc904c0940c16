"""Supervised executors: threads that do one kind of work; one that hangs fails its callers and is replaced."""

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from turnscore_core.errors import FailedScoringError, NotReadyError

from turnscore_service import metrics

_T = TypeVar("_T")


async def within(seconds: float, work: Awaitable[_T]) -> _T:
    """The work's result. Raises TimeoutError where it takes longer, and cancels it.

    `asyncio.timeout` does the same for any block of code, with twice the CPU (measured: 3.5 and 1.7 us).
    """
    task = asyncio.current_task()
    assert task is not None
    is_late = False

    def end() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, end)
    try:
        return await work
    except asyncio.CancelledError:
        if is_late and not task.uncancel():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


class OpenWork:
    """A count, entered as a context manager. Belongs to one event loop."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self) -> None:
        self.count += 1

    def end(self, *_: object) -> None:
        self.count -= 1
        if not self.count:
            for each in self._waiting:
                if not each.done():
                    each.set_result(None)
            self._waiting.clear()

    __enter__, __exit__ = begin, end

    async def wait_until_none(self) -> None:
        """Returns when nothing is open, at once where nothing is."""
        while self.count:
            closed = asyncio.get_running_loop().create_future()
            self._waiting.append(closed)
            await closed


_P = ParamSpec("_P")
_MOST_DEATHS = 3  # deaths in a row after which the process is given up: each leaves a thread behind

_LOGGER = logging.getLogger("turnscore.stages")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorWatch:
    """Who hears of a stage's death and return, and when a piece of work counts as hung."""

    stall_seconds: float = 60.0
    on_death: Callable[[str], None] = lambda _: None
    on_revival: Callable[[str], None] = lambda _: None
    on_unrecoverable: Callable[[str], None] = lambda _: None


@dataclass(slots=True, eq=False, kw_only=True)
class _Job:
    work: Callable[[], Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop
    started_at: float | None = None
    is_probe: bool = False


class SupervisedExecutor:
    """`threads` threads with one queue. Belongs to one event loop."""

    def __init__(
        self, name: str, threads: int, probe: Callable[[], object], watch: ExecutorWatch | None = None
    ) -> None:
        """`probe` is a small piece of the stage's own work, run to see whether fresh threads do it."""
        self._name = name
        metrics.STAGE_DEATHS.labels(name)  # 0, from which Prometheus sees the first death rise
        self._threads = threads
        self._probe = probe
        self._watch = watch or ExecutorWatch()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._alive = 0  # threads that take from the queue; the first ones begin when there is work for them
        self._jobs: set[_Job] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._deaths = 0
        self._is_closed = False

    def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> "asyncio.Future[_T]":
        """Does the work in a thread. Work whose future is cancelled before it starts is not done.

        The future raises what the work raises, FailedScoringError when the stage dies meanwhile, NotReadyError after
        `close`.
        """
        loop = asyncio.get_running_loop()
        job = _Job(work=functools.partial(work, *args, **kwargs), future=loop.create_future(), loop=loop)
        self._submit(job)
        return job.future

    def close(self) -> None:
        """Takes no more work. Running work goes on; waiting work is dropped."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._dismiss()

    def retire(self) -> None:
        """Closes, and keeps nothing of its work. That it was dead no longer matters."""
        self.close()
        self._probe = lambda: None
        if self._deaths:
            self._watch.on_revival(self._name)

    def _submit(self, job: _Job) -> None:
        if self._is_closed:
            job.future.set_exception(NotReadyError("the service is shutting down"))
            return
        self._jobs.add(job)
        if self._alive < self._threads:
            name = f"turnscore-{self._name}_{self._alive}"
            # Daemons: a thread that hangs must not keep the process from ending.
            thread = threading.Thread(target=self._work, args=(self._queue,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the system gives no thread
                _LOGGER.error("stage %s takes no work", self._name, exc_info=error)
                self._die({job})
                return
            self._alive += 1
        self._queue.put(job)
        if self._timer is None:
            self._look_later(job.loop)

    def _dismiss(self) -> None:
        """Drops the jobs that wait. Each thread ends with the one that it does; later jobs get others."""
        with suppress(Empty):
            while True:
                self._queue.get_nowait()
        for _ in range(self._alive):
            self._queue.put(None)
        self._queue, self._alive = SimpleQueue(), 0

    def _work(self, queue: "SimpleQueue[_Job | None]") -> None:
        """In a thread of the stage."""
        while (job := queue.get()) is not None:
            result: object = None
            error: BaseException | None = None
            if not job.future.done():
                job.started_at = time.monotonic()
                try:
                    result = job.work()
                except StopIteration as stopped:  # no future takes it
                    error = RuntimeError(repr(stopped))
                except Exception as raised:
                    error = raised
                except BaseException as raised:  # would end the event loop of the caller that awaits it
                    error = RuntimeError(f"{type(raised).__name__} in a thread")
            with suppress(RuntimeError):  # the loop is closed: no caller is left
                job.loop.call_soon_threadsafe(self._settle, job, result, error)
            del job, result, error  # while the next one is waited for, nothing may keep the models that this one used

    def _settle(self, job: _Job, result: object, error: BaseException | None) -> None:
        self._jobs.discard(job)
        if not job.future.done():
            if error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        seconds = self._watch.stall_seconds / 4
        self._due_at = time.monotonic() + seconds
        self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for job in self._jobs:
            if job.started_at is not None:
                # A look that comes late says that the whole process stood still, as under SIGSTOP: nothing hangs.
                job.started_at += now - self._due_at
        oldest = now - self._watch.stall_seconds
        hung = {job for job in self._jobs if job.started_at is not None and job.started_at < oldest}
        if hung:
            _LOGGER.critical("stage %s has hung for %s seconds", self._name, self._watch.stall_seconds)
            self._die(hung)
        elif self._jobs:
            self._look_later(asyncio.get_running_loop())

    def _die(self, hung: set[_Job]) -> None:
        """Fails the callers of what hangs and moves everything that waits to fresh threads."""
        metrics.STAGE_DEATHS.labels(self._name).inc()
        self._deaths += 1
        self._watch.on_death(self._name)
        waiting = {job for job in self._jobs - hung if job.started_at is None}
        self._jobs -= hung | waiting
        self._dismiss()
        for job in hung:
            self._settle(job, None, FailedScoringError(f"{self._name} stopped answering and was restarted"))
        if self._deaths > _MOST_DEATHS:
            self._give_up(waiting)
            return
        if not any(job.is_probe for job in waiting):
            self._start_probe()
        for job in waiting:
            self._submit(job)

    def _give_up(self, waiting: set[_Job]) -> None:
        self.close()
        for job in waiting:
            self._settle(job, None, FailedScoringError(f"{self._name} stopped answering"))
        self._watch.on_unrecoverable(self._name)

    def _start_probe(self) -> None:
        loop = asyncio.get_running_loop()
        job = _Job(work=self._probe, future=loop.create_future(), loop=loop, is_probe=True)
        job.future.add_done_callback(self._judge)
        self._submit(job)

    def _judge(self, probe: "asyncio.Future[object]") -> None:
        if probe.cancelled() or self._is_closed:
            return
        error = probe.exception()
        if error is None:
            self._deaths = 0
            self._watch.on_revival(self._name)
        elif not isinstance(error, FailedScoringError):  # it ran and failed; one that hung is tried again by `_die`
            _LOGGER.error("the probe of stage %s failed", self._name, exc_info=error)
            asyncio.get_running_loop().call_later(self._watch.stall_seconds / 4, self._start_probe)
