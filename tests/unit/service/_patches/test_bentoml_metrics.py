"""Each service has a folder for its metrics: workers share it, other services leave it alone, nobody's is removed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from turnscore_service._patches.bentoml_metrics import FullDiskError, claim_folder, refuse_full_disk

WORKER = """
import os, sys
from turnscore_service import metrics
metrics.ITEMS.labels("fed", "m", "scored").inc()
os.write(1, os.environ["PROMETHEUS_MULTIPROC_DIR"].encode() + b"\\n")  # at once: two workers share the pipe
sys.stdin.read()
"""
SUPERVISOR = f"""
import subprocess, sys
workers = [subprocess.Popen([sys.executable, "-c", {WORKER!r}], stdin=subprocess.PIPE) for _ in range(int(sys.argv[1]))]
sys.stdin.read()
for each in workers:
    each.stdin.close()
    each.wait()
"""


class Service:
    """A supervisor with workers that count one scored turn each."""

    def __init__(self, home: Path, workers: int = 1) -> None:
        shared = home / "prometheus_multiproc_dir"
        shared.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(shared)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, str(workers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.folders = {Path(self.process.stdout.readline().strip()) for _ in range(workers)}

    def stop(self) -> None:
        self.process.communicate()


@pytest.fixture
def started() -> Iterator[list[Service]]:
    services: list[Service] = []
    yield services
    for each in services:
        if each.process.poll() is None:
            each.stop()


def test_what_ended_services_left_is_removed_by_the_next(tmp_path: Path, started: list[Service]):
    first = Service(tmp_path)
    [folder] = first.folders
    first.stop()
    assert folder.exists()
    second = Service(tmp_path)
    started.append(second)
    [left] = [each for each in folder.parent.iterdir() if each.is_dir()]
    assert {left} == second.folders
    assert [each.stem for each in folder.parent.glob("*.lock")] == [left.name]


def test_a_process_that_is_no_worker_keeps_the_folder_it_was_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path / "mine"))
    claim_folder()
    assert os.environ["PROMETHEUS_MULTIPROC_DIR"] == str(tmp_path / "mine")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_refused_with_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("BENTOML_HOME", str(tmp_path / "not" / "yet"))
    refuse_full_disk()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 4096})())
    with pytest.raises(FullDiskError, match="4,096 bytes free"):
        refuse_full_disk()
