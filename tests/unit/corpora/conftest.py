import os

import fsspec
import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch):
    """A disk's synchronisation takes longer than all else; test_commits.py shows where it is asked for."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def bucket():
    """An object store's folder."""
    yield "memory://bucket/run"
    fsspec.filesystem("memory").rm("/bucket", recursive=True)
