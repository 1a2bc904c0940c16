"""Fixtures of all tests, and how tests are dealt out to processes (pytest-xdist, `--dist loadfile`)."""

import gc
import os
import socket
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, settings
from support.fakes import FakeScorer
from support.transports import http_client, ready_runtime
from turnscore_core.inference.devices import Machine, choose_devices
from turnscore_core.inference.onnx_backend import DeviceError

os.environ.setdefault("OMP_NUM_THREADS", "1")  # models are tiny, and every core has a process of tests already
# The same examples each time; how long they take says more of the machine than of the code.
_SLOW = [HealthCheck.too_slow]
settings.register_profile("steady", max_examples=60, deadline=None, derandomize=True, suppress_health_check=_SLOW)
settings.load_profile("steady")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What collecting imports stays: no collector of garbage walks through it, then or in the tests.

    Such walks took 5 of 24 CPU seconds (2 cores of an AMD EPYC, `make test`, 2026-11-23, others running).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TURNSCORE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def fake_scorer():
    return FakeScorer()


@pytest.fixture(scope="session")
def cuda():
    """The first CUDA device; skips the test, with the reason, where none can be used."""
    try:
        return choose_devices("cuda", Machine()).devices[0]
    except DeviceError as error:
        pytest.skip(f"no CUDA device: {error}")


@pytest.fixture
def serve():
    """Serves the given scorers in this process: `async with serve(fake=scorer) as (client, runtime)`."""

    @asynccontextmanager
    async def start(settings=None, candidates=None, **scorers):
        async with ready_runtime(settings, candidates, **scorers) as runtime, http_client(runtime) as client:
            yield client, runtime

    return start


@pytest.fixture
async def client(serve):
    """Of a service on one fake."""
    async with serve(fake=FakeScorer()) as (opened, _):
        yield opened


# So that no process is left with a long module at the end.
_LONGEST_FIRST = ("e2e", "packaging", "integration", "parity", "unit/exporters", "unit/loadtests")
# Folders in which what takes long to make, a running service or wheels, is made once for all modules.
_SHARING = ("e2e", "packaging")


def pytest_collection_modifyitems(items):
    """Gives every test an id of its own, by which it is dealt out; the order, where there are several processes."""
    for item in items:
        if hasattr(item, "operation_label"):  # schemathesis names the operation, which pytest 9.2 leaves out of the id
            item._id = item.parent.id.child(item.name)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _place(_module(item.nodeid)))


def pytest_sessionstart(session):
    """In a process of tests, has what pytest-rerunfailures says of each test leave at once.

    It says so in several small messages that nobody answers, and Nagle's algorithm held each test up: half of 269 tests
    took 44 ms and more instead of 6 (2 cores of an AMD EPYC, 2026-11-23, others running).
    """
    if "PYTEST_XDIST_WORKER" in os.environ and session.config.pluginmanager.hasplugin("rerunfailures"):
        said = session.config.failures_db.sock
        said.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """For `-n auto`: one more than there are cores, four at most, as many tests wait for a process or for time to pass.

    Two cores of an AMD EPYC, 2026-11-27: 327 s with three, 408 s with two; on a slower one 378 s, and 380 s with four.
    """
    return min(4, len(os.sched_getaffinity(0)) + 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """For `--dist loadfile`: a module goes to one process, and so does a folder that shares.

    Raises UsageError for two tests of one id: one of them would not be run.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Dealing(LoadFileScheduling):
        def add_node_collection(self, node, collection):
            twice = [each for each, count in Counter(collection).items() if count > 1]
            if twice:
                raise pytest.UsageError(f"more than one test is called {', '.join(twice)}")
            super().add_node_collection(node, collection)

        def _split_scope(self, nodeid):
            module = _module(nodeid)
            folder = module.partition("/")[0]
            return folder if folder in _SHARING else module

    return Dealing(config, log)


def _module(node):
    """`unit/wire/test_messages.py`."""
    return node.partition("::")[0].removeprefix("tests/")


def _place(module):
    places = [place for place, folder in enumerate(_LONGEST_FIRST) if module.startswith(f"{folder}/")]
    return min(places, default=len(_LONGEST_FIRST))
