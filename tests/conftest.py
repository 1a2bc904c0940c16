import gc
import os
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import pytest
from support.dealing import pytest_collection_modifyitems, pytest_sessionstart, pytest_xdist_make_scheduler
from support.fakes import FakeScorer, loaded_fake
from turnscore_core.inference.devices import Device, Machine, choose_devices
from turnscore_core.inference.onnx_backend import DeviceError
from turnscore_service.api.http.app import create_app
from turnscore_service.lifecycle.runtime import Runtime
from turnscore_service.scheduling.versions import CandidateVersions
from turnscore_service.settings.service import Settings

__all__ = ["pytest_collection_modifyitems", "pytest_sessionstart", "pytest_xdist_make_scheduler"]  # hooks

os.environ.setdefault("OMP_NUM_THREADS", "1")  # models are tiny, and every core has a process of tests already


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting imports stays: no collector of garbage walks through it, then or in the tests.

    Such walks took 5 of 24 CPU seconds (2 cores of an AMD EPYC, `make test`, 2026-11-23, others beside).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TURNSCORE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def fake_scorer() -> FakeScorer:
    return FakeScorer()


@pytest.fixture(scope="session")
def cuda() -> Device:
    """The first CUDA device; skips the test, with the reason, where none can be used."""
    try:
        return choose_devices("cuda", Machine()).devices[0]
    except DeviceError as error:
        pytest.skip(f"no CUDA device: {error}")


ServeFakes = Callable[..., AbstractAsyncContextManager[tuple[httpx.AsyncClient, Runtime]]]


@pytest.fixture
def serve() -> ServeFakes:
    """Serves the given scorers in this process: `async with serve(fake=scorer) as (client, runtime)`."""

    @asynccontextmanager
    async def start(
        settings: Settings | None = None, beside: CandidateVersions | None = None, **scorers: Any
    ) -> AsyncIterator[tuple[httpx.AsyncClient, Runtime]]:
        loaded = {name: loaded_fake(scorer, name) for name, scorer in scorers.items()}
        versions = beside or CandidateVersions()
        runtime = Runtime(settings or Settings(), load=lambda _: loaded, load_candidate=lambda *_: versions)
        runtime.start()
        await runtime.wait_until_loaded()
        transport = httpx.ASGITransport(create_app(runtime), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://turnscore") as client:
            try:
                yield client, runtime
            finally:
                others = [each.loaded.scorer for each in (*versions.shadows, *versions.splits)]
                for scorer in (*scorers.values(), *others):
                    if isinstance(scorer, FakeScorer):  # a test that failed must not leave a thread waiting
                        scorer.gate.set()
                        scorer.tokenizer_gate.set()
        await runtime.stop()

    return start
