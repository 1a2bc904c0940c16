"""Supervision: the sentence of BentoML's supervisor that cannot start, and the end of a worker that has lost it."""

import asyncio
import errno
import os
import signal
import sys
from types import TracebackType

from turnscore_service.metrics_folder import VARIABLE

_LOOK_SECONDS = 1.0
"""How long a worker may outlive its supervisor before it begins to drain. Chosen."""


def is_worker() -> bool:
    """Whether BentoML started this process as a worker: it gives each the folder for its metrics."""
    return VARIABLE in os.environ


def explain_taken_address() -> None:
    """In the supervisor, an address that another process listens on ends the start with a sentence, not a traceback."""
    before = sys.excepthook

    def explain(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            sys.stderr.write("turnscore cannot start: another process listens on its address; choose another --port\n")
        else:
            before(kind, error, traceback)

    sys.excepthook = explain


async def end_with(supervisor: int) -> None:
    """Sends this process SIGTERM when `supervisor` is no longer its parent.

    A worker without one would hold the port, and nothing would stop or restart it.
    """
    while os.getppid() == supervisor:
        await asyncio.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
