"""HTTP on a scorer without a model, served over a real socket from a thread of the test process."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from turnscore_core.loaded_scorer import LoadedScorer
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.settings.service import Settings

from support.fakes import loaded_fake


@contextmanager
def served_app(
    settings: Settings | None = None,
    *,
    tls: Mapping[str, Any] | None = None,
    loaded: Mapping[str, LoadedScorer] | None = None,
    **scorers: Any,
) -> Iterator[str]:
    """The base URL of a ready service with these scorers; `tls` are uvicorn's options, which BentoML's are."""
    served = {**(loaded or {}), **{name: loaded_fake(scorer, name) for name, scorer in scorers.items()}}
    runtime = Runtime(settings or Settings(), load=lambda _: served)
    transport = create_app(runtime)
    config = uvicorn.Config(transport, host="127.0.0.1", port=0, log_config=None, lifespan="off", **(tls or {}))
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    started = threading.Event()
    ports: list[int] = []

    async def run() -> None:
        runtime.start()
        await runtime.wait_until_loaded()
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)  # uvicorn tells it in no other way
        ports.append(server.servers[0].sockets[0].getsockname()[1])
        started.set()
        await serving
        await runtime.stop()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert started.wait(60)
        yield f"{'https' if tls else 'http'}://127.0.0.1:{ports[0]}"
    finally:
        server.should_exit = True
        thread.join()
