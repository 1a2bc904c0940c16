"""Background: long work that blocks, in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_Result = TypeVar("_Result")


async def run_in_background(work: Callable[[], _Result]) -> _Result:
    """What the work returns or raises. A daemon does it, which cannot keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()
    threading.Thread(target=_perform, args=(work, loop, done), name="turnscore-background", daemon=True).start()
    try:
        return await done
    finally:
        del done  # an error's traceback has this frame: both would keep each other, and a model that was refused


def _perform(work: Callable[[], _Result], loop: asyncio.AbstractEventLoop, done: "asyncio.Future[_Result]") -> None:
    """In the thread."""
    try:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            try:
                result = work()
            except Exception as error:
                loop.call_soon_threadsafe(_fail, done, error)
            else:
                loop.call_soon_threadsafe(_succeed, done, result)
    finally:
        del done, work  # as above


def _succeed(done: "asyncio.Future[_Result]", result: _Result) -> None:
    if not done.done():  # whoever waited is still there
        done.set_result(result)


def _fail(done: "asyncio.Future[_Result]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
