"""Deals tests out to processes (pytest-xdist, `--dist loadfile`): longest first, what shares a fixture together.

pytest's hooks; tests/conftest.py takes them in.
"""

import os
import socket
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

_LONGEST_FIRST = ("e2e", "packaging", "integration", "parity", "unit/exporters", "unit/bench", "unit/loadtests")
"""So that no process is left with a long module at the end."""
_SHARING = ("e2e", "packaging")
"""Folders in which what takes long to make, a running service or wheels, is made once for all modules."""
_ALONE = ("e2e/test_gpu.py", "e2e/test_road.py")
"""Modules in them that share nothing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives every test an id of its own, by which it is dealt out; the order, where there are several processes."""
    for item in items:
        if hasattr(item, "operation_label"):  # schemathesis names the operation, which pytest 9.2 leaves out of the id
            item._id = item.parent.id.child(item.name)  # type: ignore[union-attr]
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _place(_module(item.nodeid)))


def pytest_sessionstart(session: pytest.Session) -> None:
    """In a process of tests, has what pytest-rerunfailures says of each test leave at once.

    It says so in several small messages that nobody answers, and Nagle's algorithm held each test up: half of 269 tests
    took 44 ms and more instead of 6 (2 cores of an AMD EPYC, 2026-11-23, others beside).
    """
    if "PYTEST_XDIST_WORKER" in os.environ and session.config.pluginmanager.hasplugin("rerunfailures"):
        said: socket.socket = session.config.failures_db.sock  # type: ignore[attr-defined]
        said.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadfile`: a module goes to one process, and so does a folder that shares.

    Raises UsageError for two tests of one id: one of them would not be run.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Dealing(LoadFileScheduling):
        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            twice = [each for each, count in Counter(collection).items() if count > 1]
            if twice:
                raise pytest.UsageError(f"more than one test is called {', '.join(twice)}")
            super().add_node_collection(node, collection)

        def _split_scope(self, nodeid: str) -> str:
            return _scope(_module(nodeid))

    return Dealing(config, log)


def _module(node: str) -> str:
    """`unit/wire/test_rank_types.py`."""
    return node.partition("::")[0].removeprefix("tests/")


def _scope(module: str) -> str:
    folder = module.partition("/")[0]
    return folder if folder in _SHARING and module not in _ALONE else module


def _place(module: str) -> int:
    places = [place for place, folder in enumerate(_LONGEST_FIRST) if module.startswith(f"{folder}/")]
    return min(places, default=len(_LONGEST_FIRST))
