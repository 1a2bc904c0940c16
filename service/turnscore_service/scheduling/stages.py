"""Stages: the threads that do one kind of work. A stage that dies fails its callers and is replaced.

A thread cannot be ended from outside, so one that hangs is left behind with its work, and the stage goes on with fresh
threads. Until a proof has run on them the stage reports itself as dead.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from turnscore_core.errors import FailedScoringError, NotReadyError

from turnscore_service import metrics
from turnscore_service.scheduling.crew import Crew

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MOST_DEATHS = 3
"""Deaths in a row after which the process is given up: each leaves a thread behind. Chosen."""

_LOGGER = logging.getLogger("turnscore.stages")


def _report_to_nobody(stage: str) -> None:
    pass


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWatch:
    """Who hears of a stage's death and return, and when a piece of work counts as hung."""

    stall_seconds: float = 60.0
    on_death: Callable[[str], None] = _report_to_nobody
    on_revival: Callable[[str], None] = _report_to_nobody
    on_hopeless: Callable[[str], None] = _report_to_nobody


@dataclass(slots=True, eq=False, kw_only=True)
class _Job:
    work: Callable[[], Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop
    started_at: float | None = None
    is_proof: bool = False


class Stage:
    """`threads` threads with one queue. Belongs to one event loop."""

    def __init__(self, name: str, threads: int, proof: Callable[[], object], watch: StageWatch | None = None) -> None:
        """`proof` is a small piece of the stage's own work, run to see whether fresh threads do it."""
        self._name = name
        metrics.STAGE_DEATHS.labels(name)  # 0, from which Prometheus sees the first death rise
        self._threads = threads
        self._proof = proof
        self._watch = watch or StageWatch()
        self._crew = self._new_crew()
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
        self._crew.dismiss()

    def retire(self) -> None:
        """Closes, and keeps nothing of its work. That it was dead concerns nobody any more."""
        self.close()
        self._proof = _do_nothing
        if self._deaths:
            self._watch.on_revival(self._name)

    def _submit(self, job: _Job) -> None:
        if self._is_closed:
            job.future.set_exception(NotReadyError("the service is shutting down"))
            return
        self._jobs.add(job)
        try:
            self._crew.submit(job)
        except RuntimeError as error:  # the system gives no thread
            _LOGGER.error("stage %s takes no work", self._name, exc_info=error)
            self._die({job})
            return
        if self._timer is None:
            self._look_later(job.loop)

    def _perform(self, job: _Job) -> None:
        """In a thread of the stage."""
        if job.future.cancelled():
            result, error = None, None
        else:
            job.started_at = time.monotonic()
            result, error = _attempt(job.work)
        with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            job.loop.call_soon_threadsafe(self._settle, job, result, error)

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
        self._excuse(time.monotonic() - self._due_at)
        oldest = time.monotonic() - self._watch.stall_seconds
        hung = {job for job in self._jobs if job.started_at is not None and job.started_at < oldest}
        if hung:
            _LOGGER.critical("stage %s has hung for %s seconds", self._name, self._watch.stall_seconds)
            self._die(hung)
        elif self._jobs:
            self._look_later(asyncio.get_running_loop())

    def _excuse(self, late_seconds: float) -> None:
        """A look that comes late says that the whole process stood still, as under SIGSTOP: its work does not hang."""
        for job in self._jobs:
            if job.started_at is not None:
                job.started_at += late_seconds

    def _die(self, hung: set[_Job]) -> None:
        """Fails the callers of what hangs and moves everything that waits to fresh threads."""
        metrics.STAGE_DEATHS.labels(self._name).inc()
        self._deaths += 1
        self._watch.on_death(self._name)
        waiting = {job for job in self._jobs - hung if job.started_at is None}
        self._jobs -= hung | waiting
        self._crew.dismiss()
        for job in hung:
            self._settle(job, None, FailedScoringError(f"{self._name} stopped answering and was restarted"))
        if self._deaths > _MOST_DEATHS:
            self._give_up(waiting)
            return
        self._crew = self._new_crew()
        if not any(job.is_proof for job in waiting):
            self._prove()
        for job in waiting:
            self._submit(job)

    def _give_up(self, waiting: set[_Job]) -> None:
        self.close()
        for job in waiting:
            self._settle(job, None, FailedScoringError(f"{self._name} stopped answering"))
        self._watch.on_hopeless(self._name)

    def _prove(self) -> None:
        loop = asyncio.get_running_loop()
        job = _Job(work=self._proof, future=loop.create_future(), loop=loop, is_proof=True)
        job.future.add_done_callback(self._judge)
        self._submit(job)

    def _judge(self, proof: "asyncio.Future[object]") -> None:
        if proof.cancelled() or self._is_closed:
            return
        error = proof.exception()
        if error is None:
            self._deaths = 0
            self._watch.on_revival(self._name)
        elif not isinstance(error, FailedScoringError):  # it ran and failed; one that hung is tried again by `_die`
            _LOGGER.error("the proof of stage %s failed", self._name, exc_info=error)
            asyncio.get_running_loop().call_later(self._watch.stall_seconds / 4, self._prove)

    def _new_crew(self) -> Crew[_Job]:
        return Crew(f"turnscore-{self._name}", self._threads, self._perform)


def _attempt(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except StopIteration as error:  # no future takes it
        return None, RuntimeError(repr(error))
    except Exception as error:
        return None, error
    except BaseException as error:  # would end the event loop of the caller that awaits it
        return None, RuntimeError(f"{type(error).__name__} in a thread")
