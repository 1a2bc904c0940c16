import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch):
    """A disk's synchronisation takes longer than all else; test_commits.py shows where it is asked for."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
