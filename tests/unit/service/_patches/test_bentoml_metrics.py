"""Each service has a folder for its metrics: workers share it, other services leave it alone, nobody's is removed."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from turnscore_service._patches.bentoml_metrics import FullDiskError, claim_folder, refuse_full_disk

WORKER = """
import os, sys
from turnscore_service import metrics
print(os.environ["PROMETHEUS_MULTIPROC_DIR"], flush=True)
sys.stdin.read()
"""
# A worker's parent is its service's supervisor.
SUPERVISOR = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKER!r}])"


@contextmanager
def service(home):
    """A supervisor with one worker, whose folder it is."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(home / "prometheus_multiproc_dir")}
    command = [sys.executable, "-c", SUPERVISOR]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        yield Path(process.stdout.readline().strip())
        process.communicate()


def test_what_ended_services_left_is_removed_by_the_next(tmp_path):
    with service(tmp_path) as left:
        pass
    assert left.exists()
    with service(tmp_path) as own:
        assert [each for each in own.parent.iterdir() if each.is_dir()] == [own]
        assert [each.stem for each in own.parent.glob("*.lock")] == [own.name]


def test_a_process_that_is_no_worker_keeps_the_folder_it_was_given(monkeypatch, tmp_path):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "mine"))
    claim_folder()
    assert os.environ["PROMETHEUS_MULTIPROC_DIR"] == str(tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_refused_with_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("BENTOML_HOME", str(tmp_path / "not" / "yet"))
    refuse_full_disk()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 4096})())
    with pytest.raises(FullDiskError, match="4,096 bytes free"):
        refuse_full_disk()
